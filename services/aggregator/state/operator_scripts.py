"""The operators' actions on a federation as atomic Redis scripts; scripts.py explains their keys.

Every script returns a list whose first element says what happened.
"""

STATUS = """
-- KEYS federation events; ARGV status
local now = redis.call('HGET', KEYS[1], 'status')
if not now then return {'unfounded'} end
if now == 'finished' or (now == 'stopping' and ARGV[1] ~= 'stopping') then return {'over', now} end
redis.call('HSET', KEYS[1], 'status', ARGV[1])
redis.call('XADD', KEYS[2], '*', 'type', ARGV[1])
return {'done', ARGV[1]}
"""

MODE = """
-- KEYS federation events; ARGV mode reason
local now = redis.call('HGET', KEYS[1], 'status')
if not now then return {'unfounded'} end
if now == 'finished' or now == 'stopping' then return {'over', now} end
redis.call('HSET', KEYS[1], 'mode', ARGV[1])
redis.call('XADD', KEYS[2], '*', 'type', 'mode', 'mode', ARGV[1], 'reason', ARGV[2])
return {'done', ARGV[1]}
"""

EVICT = """
-- KEYS clients evicted tickets events pulls quarantined; ARGV client why
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return {'unknown'} end
if redis.call('HSETNX', KEYS[2], ARGV[1], ARGV[2]) == 0 then return {'already'} end
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[5], ARGV[1])
redis.call('HDEL', KEYS[6], ARGV[1])
redis.call('XADD', KEYS[4], '*', 'type', 'evicted', 'client', ARGV[1],
  'reason', cjson.decode(ARGV[2]).reason)
return {'evicted'}
"""

REINSTATE = """
-- KEYS clients evicted events quarantined; ARGV client reason
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return {'unknown'} end
local held = redis.call('HDEL', KEYS[2], ARGV[1]) + redis.call('HDEL', KEYS[4], ARGV[1])
if held == 0 then return {'already'} end
redis.call('XADD', KEYS[3], '*', 'type', 'reinstated', 'client', ARGV[1], 'reason', ARGV[2])
return {'reinstated'}
"""

CONFIRM = """
-- KEYS quarantined evicted events; ARGV client proposal why reason
-- The proposal stands in full, so that no other than the one that was read is confirmed.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return {'gone'} end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
redis.call('XADD', KEYS[3], '*', 'type', 'confirmed', 'client', ARGV[1], 'reason', ARGV[4])
return {'confirmed'}
"""

DISMISS = """
-- KEYS quarantined events; ARGV client proposal reason
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return {'gone'} end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('XADD', KEYS[2], '*', 'type', 'dismissed', 'client', ARGV[1], 'reason', ARGV[3])
return {'dismissed'}
"""
