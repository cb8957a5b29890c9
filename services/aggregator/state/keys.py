"""The names of all keys in Redis, and the version of their schema.

All keys begin with the namespace in braces, and are therefore in one hash slot. The values in Redis
are small, because models and updates are kept in the blob store. The keys of the federation
(`FederationKeys`):

    schema       string  version of the whole state; written by each worker that takes over
    lease        string  name of the worker that holds the lease; the key has a time to live
    fence        number  fencing token, which grows with each lease; a script that a worker calls
                         with an older token does nothing
    clients      hash    id -> {registered_at, sample_cap, token_hash, expires_at, labels}
    tokens       hash    SHA-256 of a client's token -> {client, expires_at}
    joins        hash    SHA-256 of a join token -> {expires_at, client_id?, sample_cap?, labels?,
                         used?, token_hash?, revoked?}
    seen         zset    id -> time of its last request, by Redis' clock; negative if the client
                         said that it is away
    software     hash    id -> the software that its last request named
    barred       hash    id -> why, when and by whom the client was barred from the federation
    attempts:A:W number  attempts of name A in time window W
    operators    hash    name -> {role, token_hash, created_at, created_by, expires_at, revoked_at}
    operator_tokens hash SHA-256 of an operator's current or previous token -> name
    audit        list    entries of the audit log, oldest first (see shared/protocol/audit.py)
    audit_head   string  hash of the last entry of the audit log
    runs         hash    run -> its entry in the registry (see run_registry.py)
    run_counter  number  number of runs ever submitted; also the last part of the newest run's id
    queue        list    waiting runs, first in, first out
    held         hash    run that cannot start or cannot open a round -> what the run waits for
    submissions  hash    submission key -> run
    current      string  the current run; absent if there is none
    deleted      set     deleted runs whose keys and blobs a worker still has to remove
    checks:Q:asked string experiment that a worker is asked to check in request Q
    checks:Q     string  the worker's answer to request Q
    events       stream  events of runs, clients and tokens, and takeovers by workers

The keys of one run (`RunKeys`), which all begin with `run:` and the run's id:

    state        hash    experiment, digest and, once a worker has started the run, spec, policy,
                         status, phase, round, opened_at, deadline, alive_at, selected,
                         examined, closing (position of the last event of a closed round),
                         snapshot (pointers to blobs, see snapshot.py), seated (once slots are
                         assigned), founders (number of members when round 0 opened), mode (mode of
                         evictions, if an operator has set one), abstained (clients that the
                         previous round would have barred without the limit on barred clients),
                         server_seed (secret seed of the server's random draws), barring_conflict
                         (why operators may not switch the run to a mode that bars clients; empty
                         if they may)
    answers      hash    id -> a client's answer to the run's offer: {accept, reason, slot, at}
    members      hash    id -> slot, for the clients that take part
    history      hash    round -> entry of the round, for the newest rounds (see record_store.py)
    late         hash    round -> clients whose update came after the end of the round, for the
                         rounds in `history` and the round that is being aggregated
    segments     hash    last round of a segment -> digest of the segment (see record_store.py)
    tickets      hash    id -> outstanding ticket
    pulls        hash    id -> round in which the client asked for a ticket (buffered policy)
    receipts:R   hash    "kind:id" -> receipt of an upload for round R
    evicted      hash    id -> why, when and by whom the client was evicted from the run
    quarantined  hash    id -> until (first round that may select the client again), kind
                         (quarantine or proposal), reason and time
    reinstated   set     clients that an operator reinstated since the last published round
    customized:Q string  digest of the model that was made for request Q
    events       stream  everything that happens in the run, in order; the worker and operators
                         read it; deleted a day after the run's end
"""

SCHEMA = "3"
"""Schema version of all state in Redis; each snapshot also contains this version."""
MIGRATED = ("1", "2")
"""The older schemas that a worker converts when it starts (see schema_migration.py)."""


def prefix_of(namespace: str) -> str:
    """The prefix of all keys of a namespace; the braces put the keys into one hash slot.

    >>> prefix_of("rampart")
    '{rampart}:'
    """
    return f"{{{namespace}}}:"


class FederationKeys:
    """Keys of the federation's state: the worker's lease, clients, operators, audit log, runs.

    Args:
        prefix: the prefix of all keys.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.schema = f"{prefix}schema"
        self.lease = f"{prefix}lease"
        self.fence = f"{prefix}fence"
        self.clients = f"{prefix}clients"
        self.tokens = f"{prefix}tokens"
        self.joins = f"{prefix}joins"
        self.seen = f"{prefix}seen"
        self.software = f"{prefix}software"
        self.barred = f"{prefix}barred"
        self.operators = f"{prefix}operators"
        self.operator_tokens = f"{prefix}operator_tokens"
        self.audit = f"{prefix}audit"
        self.audit_head = f"{prefix}audit_head"
        self.runs = f"{prefix}runs"
        self.run_counter = f"{prefix}run_counter"
        self.queue = f"{prefix}queue"
        self.held = f"{prefix}held"
        self.submissions = f"{prefix}submissions"
        self.current = f"{prefix}current"
        self.deleted = f"{prefix}deleted"
        self.events = f"{prefix}events"

    def attempts(self, name: str, window: int) -> str:
        """The key of a counter for the attempts with this name in one time window."""
        return f"{self.prefix}attempts:{name}:{window}"

    def checks(self, request: str) -> str:
        """The key under which the answer to a request to check an experiment is stored.

        `request` is the id of the request. For `<id>:asked`, the method returns the key of the
        experiment that is to be checked.
        """
        return f"{self.prefix}checks:{request}"

    def of_run(self, run: str) -> "RunKeys":
        """The keys of one run."""
        return RunKeys(f"{self.prefix}run:{run}:")


class RunKeys:
    """Keys of the state of one run.

    Args:
        prefix: the prefix of the run's keys.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.state = f"{prefix}state"
        self.answers = f"{prefix}answers"
        self.members = f"{prefix}members"
        self.history = f"{prefix}history"
        self.late = f"{prefix}late"
        self.segments = f"{prefix}segments"
        self.tickets = f"{prefix}tickets"
        self.pulls = f"{prefix}pulls"
        self.evicted = f"{prefix}evicted"
        self.quarantined = f"{prefix}quarantined"
        self.reinstated = f"{prefix}reinstated"
        self.events = f"{prefix}events"

    def receipts(self, round_: int | str) -> str:
        """The key of a round's receipts; the round "*" gives a pattern that matches all rounds."""
        return f"{self.prefix}receipts:{round_}"

    def customization(self, request: str) -> str:
        """The key of the digest of the model that was made for a request."""
        return f"{self.prefix}customized:{request}"
