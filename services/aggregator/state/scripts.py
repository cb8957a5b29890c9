"""The atomic transitions of the federation's state, as Redis scripts.

All keys are under one namespace, and so in one hash slot. Their values are small, because models
and updates are kept in the blob store:

    federation   hash    schema, experiment, digest, spec, policy, status, phase, round, opened_at,
                         deadline, alive_at, selected, closing (position of the last event of a
                         closed round), snapshot (pointers to blobs, see snapshot.py), founders
                         (number of clients when round 0 opened), mode (of evictions, once an
                         operator has set one), abstained (clients that the last round would have
                         barred if the limit on barred clients allowed it)
    lease        string  id of the worker that decides, with a time to live
    fence        number  fencing token: grows with each lease; a script with an older token does
                         nothing
    clients      hash    id -> {registered_at, sample_cap, token_hash}
    tokens       hash    SHA-256 of a client's token -> {client, expires_at}
    joins        hash    SHA-256 of a join token -> {expires_at, client_id?, sample_cap?, used?}
    evicted      hash    id -> why, when, by whom
    quarantined  hash    id -> until (the first round that may draw the client again), kind
                         (quarantine or proposal), why, when
    seen         zset    id -> time of its last request
    tickets      hash    id -> outstanding ticket
    pulls        hash    id -> round in which the client asked for a ticket (buffered policy)
    receipts:R   hash    "kind:id" -> receipt of an upload for round R
    history      hash    round -> record
    customized:Q string  digest of the model made for request Q
    events       stream  everything that happens, in order: the worker reads it, operators watch it

The API runs JOIN, CHANGE, ACCEPT, PULL and the operators' scripts (operator_scripts.py). The worker
runs all others, and passes its fencing token to each of them except ACQUIRE, which makes a new one.
Every script returns a list whose first element says what happened.
"""

FENCED = """
local function fenced(key, token)
  return redis.call('GET', key) ~= token
end
"""

ACQUIRE = """
-- KEYS lease fence federation; ARGV worker ttl_ms now own ('1' to take over one's own name's lease)
local holder = redis.call('GET', KEYS[1])
if holder and (holder ~= ARGV[1] or ARGV[4] == '0') then return {'held', holder} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local fence = redis.call('INCR', KEYS[2])
local alive = redis.call('HGET', KEYS[3], 'alive_at')
local deadline = redis.call('HGET', KEYS[3], 'deadline')
if alive and deadline and deadline ~= '' then
  local away = math.max(0, tonumber(ARGV[3]) - tonumber(alive))
  redis.call('HSET', KEYS[3], 'deadline', string.format('%.6f', tonumber(deadline) + away))
end
if alive then redis.call('HSET', KEYS[3], 'alive_at', ARGV[3]) end
return {'acquired', tostring(fence)}
"""

RENEW = (
    FENCED
    + """
-- KEYS lease fence federation; ARGV worker fence ttl_ms now
if redis.call('GET', KEYS[1]) ~= ARGV[1] or fenced(KEYS[2], ARGV[2]) then return {'fenced'} end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('HSET', KEYS[3], 'alive_at', ARGV[4])
return {'renewed'}
"""
)

RELEASE = (
    FENCED
    + """
-- KEYS lease fence; ARGV worker fence
if redis.call('GET', KEYS[1]) == ARGV[1] and not fenced(KEYS[2], ARGV[2]) then
  redis.call('DEL', KEYS[1])
end
return {'released'}
"""
)

FOUND = (
    FENCED
    + """
-- KEYS federation fence events; ARGV fence digest fields_json
if fenced(KEYS[2], ARGV[1]) then return {'fenced'} end
local known = redis.call('HGET', KEYS[1], 'digest')
if known then return {known == ARGV[2] and 'same' or 'other', known} end
for name, value in pairs(cjson.decode(ARGV[3])) do redis.call('HSET', KEYS[1], name, value) end
redis.call('XADD', KEYS[3], '*', 'type', 'founded')
return {'founded'}
"""
)

JOIN = """
-- KEYS joins clients tokens events; ARGV join_hash now wished fresh token_hash expires default_cap
local raw = redis.call('HGET', KEYS[1], ARGV[1])
if not raw then return {'unknown'} end
local join = cjson.decode(raw)
if join.used then
  if join.token_hash ~= ARGV[5] then return {'used'} end
  return {'joined', join.used, redis.call('HGET', KEYS[2], join.used)}
end
if tonumber(join.expires_at) < tonumber(ARGV[2]) then return {'expired'} end
local id = join.client_id or (ARGV[3] ~= '' and ARGV[3]) or ARGV[4]
if redis.call('HEXISTS', KEYS[2], id) == 1 then return {'taken', id} end
if redis.call('HEXISTS', KEYS[3], ARGV[5]) == 1 then return {'token-taken'} end
local client = cjson.encode({registered_at = tonumber(ARGV[2]), token_hash = ARGV[5],
  expires_at = tonumber(ARGV[6]), sample_cap = join.sample_cap or tonumber(ARGV[7])})
redis.call('HSET', KEYS[2], id, client)
redis.call('HSET', KEYS[3], ARGV[5], cjson.encode({client = id, expires_at = tonumber(ARGV[6])}))
join.used = id
join.token_hash = ARGV[5]
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(join))
redis.call('XADD', KEYS[4], '*', 'type', 'joined', 'client', id)
return {'joined', id, client}
"""

CHANGE = """
-- KEYS clients tokens events; ARGV client token_hash expires ('' token_hash revokes)
local raw = redis.call('HGET', KEYS[1], ARGV[1])
if not raw then return {'unknown'} end
local client = cjson.decode(raw)
if ARGV[2] ~= client.token_hash and redis.call('HEXISTS', KEYS[2], ARGV[2]) == 1 then
  return {'taken'}
end
redis.call('HDEL', KEYS[2], client.token_hash)
client.token_hash = ARGV[2]
client.expires_at = tonumber(ARGV[3])
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[2], ARGV[2],
    cjson.encode({client = ARGV[1], expires_at = tonumber(ARGV[3])}))
end
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(client))
local event = ARGV[2] == '' and 'revoked' or 'rotated'
redis.call('XADD', KEYS[3], '*', 'type', event, 'client', ARGV[1])
return {'done', cjson.encode(client)}
"""

ACCEPT = """
-- KEYS federation tickets receipts evicted events; ARGV client round kind digest receipt_json
if redis.call('HEXISTS', KEYS[4], ARGV[1]) == 1 then return {'evicted'} end
local field = ARGV[3] .. ':' .. ARGV[1]
local held = redis.call('HGET', KEYS[3], field)
if held then
  if cjson.decode(held).digest == ARGV[4] then return {'accepted', held} end
  return {'conflict'}
end
local f = redis.call('HMGET', KEYS[1], 'round', 'phase', 'policy')
local wanted = {update = 'train', probe = 'probe', evaluation = 'evaluate'}
local raw = redis.call('HGET', KEYS[2], ARGV[1])
local ticket = raw and cjson.decode(raw)
if not ticket or ticket.round ~= tonumber(ARGV[2]) or ticket.kind ~= wanted[ARGV[3]] then
  return {tonumber(ARGV[2]) < tonumber(f[1]) and 'late' or 'no-ticket'}
end
local open = ARGV[3] == 'evaluation' and f[2] == 'evaluating' or ARGV[3] ~= 'evaluation' and
  (f[2] == 'collecting' or (f[3] == 'buffered' and f[2] ~= 'evaluating' and f[2] ~= 'done'))
if not open then return {'late'} end
-- The receipt's own text is kept: re-encoding would round its numbers.
redis.call('HSET', KEYS[3], field, ARGV[5])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('XADD', KEYS[5], '*', 'type', ARGV[3], 'client', ARGV[1], 'round', ARGV[2],
  'receipt', ARGV[5])
return {'accepted', ARGV[5]}
"""

PULL = """
-- KEYS federation tickets pulls evicted events quarantined; ARGV client
local f = redis.call('HMGET', KEYS[1], 'round', 'phase', 'policy')
if f[3] ~= 'buffered' or f[2] == 'joining' or f[2] == 'evaluating' or f[2] == 'done'
  or redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 or redis.call('HEXISTS', KEYS[3], ARGV[1]) == 1
  or redis.call('HEXISTS', KEYS[4], ARGV[1]) == 1 or redis.call('HEXISTS', KEYS[6], ARGV[1]) == 1
  then return {'ignored'} end
redis.call('HSET', KEYS[3], ARGV[1], f[1])
redis.call('XADD', KEYS[5], '*', 'type', 'pull', 'client', ARGV[1], 'round', f[1])
return {'asked'}
"""

OPEN = (
    FENCED
    + """
-- KEYS federation tickets fence events evicted pulls quarantined clients
-- ARGV fence round phase now deadline clear tickets selected
if fenced(KEYS[3], ARGV[1]) then return {'fenced'} end
local f = redis.call('HMGET', KEYS[1], 'round', 'phase')
if f[1] == ARGV[2] and f[2] == ARGV[3] then return {'opened'} end
local training = ARGV[3] == 'collecting'
if training then
  redis.call('HSETNX', KEYS[1], 'founders', redis.call('HLEN', KEYS[8]))
  local held = redis.call('HGETALL', KEYS[7])
  for i = 1, #held, 2 do
    local why = cjson.decode(held[i + 1])
    if why['until'] <= tonumber(ARGV[2]) then
      redis.call('HDEL', KEYS[7], held[i])
      if why.kind == 'proposal' then
        redis.call('XADD', KEYS[4], '*', 'type', 'dismissed', 'client', held[i],
          'reason', 'nobody decided in time')
      else
        redis.call('XADD', KEYS[4], '*', 'type', 'released', 'client', held[i])
      end
    end
  end
end
if ARGV[6] == '1' then redis.call('DEL', KEYS[2]) end
for id, ticket in pairs(cjson.decode(ARGV[7])) do
  redis.call('HDEL', KEYS[6], id)
  local away = training and redis.call('HEXISTS', KEYS[7], id) == 1
  if not away and redis.call('HEXISTS', KEYS[5], id) == 0 then
    redis.call('HSET', KEYS[2], id, ticket)
  end
end
redis.call('HSET', KEYS[1], 'round', ARGV[2], 'phase', ARGV[3], 'opened_at', ARGV[4],
  'deadline', ARGV[5], 'alive_at', ARGV[4], 'selected', ARGV[8])
redis.call('XADD', KEYS[4], '*', 'type', 'opened', 'round', ARGV[2], 'phase', ARGV[3])
return {'opened'}
"""
)

GRANT = (
    FENCED
    + """
-- KEYS tickets pulls fence events evicted receipts quarantined; ARGV fence client ticket
if fenced(KEYS[3], ARGV[1]) then return {'fenced'} end
redis.call('HDEL', KEYS[2], ARGV[2])
if redis.call('HEXISTS', KEYS[5], ARGV[2]) == 1
  or redis.call('HEXISTS', KEYS[7], ARGV[2]) == 1
  or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1
  or redis.call('HEXISTS', KEYS[6], 'update:' .. ARGV[2]) == 1 then return {'kept'} end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
redis.call('XADD', KEYS[4], '*', 'type', 'ticket', 'client', ARGV[2])
return {'granted'}
"""
)

CLOSE = (
    FENCED
    + """
-- KEYS federation fence events; ARGV fence round position
if fenced(KEYS[2], ARGV[1]) then return {'fenced'} end
local f = redis.call('HMGET', KEYS[1], 'round', 'phase')
if f[1] ~= ARGV[2] or f[2] ~= 'collecting' then return {'closed'} end
redis.call('HSET', KEYS[1], 'phase', 'aggregating', 'closing', ARGV[3])
redis.call('XADD', KEYS[3], '*', 'type', 'aggregating', 'round', ARGV[2])
return {'closed'}
"""
)

PUBLISH = (
    FENCED
    + """
-- KEYS federation history evicted fence events receipts tickets pulls quarantined
-- ARGV fence round status record evictions snapshot position keep_seconds quarantines abstained
if fenced(KEYS[4], ARGV[1]) then return {'fenced'} end
local f = redis.call('HMGET', KEYS[1], 'round', 'phase')
if f[1] == ARGV[2] and f[2] == ARGV[3] then return {'published'} end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[4])
redis.call('HSET', KEYS[1], 'phase', ARGV[3], 'deadline', '', 'snapshot', ARGV[6],
  'abstained', ARGV[10])
redis.call('EXPIRE', KEYS[6], ARGV[8])
for id, why in pairs(cjson.decode(ARGV[5])) do
  redis.call('HDEL', KEYS[7], id)
  redis.call('HDEL', KEYS[8], id)
  if redis.call('HSETNX', KEYS[3], id, why) == 1 then
    redis.call('XADD', KEYS[5], '*', 'type', 'evicted', 'client', id, 'round', ARGV[2],
      'reason', cjson.decode(why).reason)
  end
end
for id, raw in pairs(cjson.decode(ARGV[9])) do
  redis.call('HDEL', KEYS[7], id)
  redis.call('HDEL', KEYS[8], id)
  local why = cjson.decode(raw)
  if redis.call('HEXISTS', KEYS[3], id) == 0 and redis.call('HSETNX', KEYS[9], id, raw) == 1 then
    redis.call('XADD', KEYS[5], '*', 'type', why.kind == 'proposal' and 'proposed' or 'quarantined',
      'client', id, 'round', ARGV[2], 'until', why['until'], 'reason', why.reason)
  end
end
local abstained = cjson.decode(ARGV[10])
if #abstained > 0 then
  redis.call('XADD', KEYS[5], '*', 'type', 'abstained', 'round', ARGV[2],
    'clients', table.concat(abstained, ' '))
end
redis.call('XADD', KEYS[5], '*', 'type', ARGV[3], 'round', ARGV[2])
local last = redis.call('XREVRANGE', KEYS[5], '+', '-', 'COUNT', 1000)
local oldest = last[#last][1]
local function before(a, b)
  local am, as = string.match(a, '(%d+)-(%d+)')
  local bm, bs = string.match(b, '(%d+)-(%d+)')
  if tonumber(am) ~= tonumber(bm) then return tonumber(am) < tonumber(bm) end
  return tonumber(as) < tonumber(bs)
end
redis.call('XTRIM', KEYS[5], 'MINID', before(ARGV[7], oldest) and ARGV[7] or oldest)
return {'published'}
"""
)

FINISH = (
    FENCED
    + """
-- KEYS federation fence events tickets; ARGV fence
if fenced(KEYS[2], ARGV[1]) then return {'fenced'} end
redis.call('DEL', KEYS[4])
redis.call('HSET', KEYS[1], 'phase', 'done', 'status', 'finished', 'deadline', '')
redis.call('XADD', KEYS[3], '*', 'type', 'finished')
return {'finished'}
"""
)

CUSTOMIZED = (
    FENCED
    + """
-- KEYS customized fence events; ARGV fence request digest
if fenced(KEYS[2], ARGV[1]) then return {'fenced'} end
redis.call('SET', KEYS[1], ARGV[3], 'EX', 3600)
redis.call('XADD', KEYS[3], '*', 'type', 'customized', 'request', ARGV[2])
return {'done'}
"""
)
