"""
The limits of the feed, each with its reason.

Sizes are bytes of UTF-8 unless the name says otherwise; times have their unit in the name.
"""

from __future__ import annotations

# --- what one operation may hold -------------------------------------------------------------
TYPE_BYTES_MAX = 128  # escaped it may triple; with an id it must fit DynamoDB's 1,024 B sort key
ID_BYTES_MAX = 512  # see TYPE_BYTES_MAX: 3 * 128 + 1 + 512 <= 1,024
PARENT_BYTES_MAX = 640  # the type/id of any object except the very longest
PARENTS_MAX = 64  # each parent is one index lookup when operations are pushed
TAGS_MAX = 32  # far more than any known use; each one is stored and sent with its operation
JSON_DEPTH_MAX = 32  # deeper input is rejected before it can exhaust the parser's stack
OPERATION_BYTES_MAX = 64 * 1024  # two fit into one WebSocket message (128 KB, API Gateway)

# --- what one request may hold ---------------------------------------------------------------
REQUEST_OPERATIONS_MAX = 1000  # one request is one page, so it is appended completely or not at all
REQUEST_BYTES_MAX = 1024 * 1024  # far below Lambda's 6 MB; a page must compress below PAGE_BYTES
IDEMPOTENCY_KEY_CHARS_MAX = 128  # a UUID has 36; the key becomes part of a sort key

# --- pages -----------------------------------------------------------------------------------
PAGE_BYTES_MAX = 380_000  # a DynamoDB item holds 400 KB; the rest is for names and numbers
PAGE_TEXT_BYTES_MAX = REQUEST_OPERATIONS_MAX * (OPERATION_BYTES_MAX + 1)  # of one page, unpacked
PAGE_PLAIN_BYTES_MAX = 900  # below one write unit (1 KB) compression saves nothing: stay readable
TRACES_PER_S = 1  # per process, as X-Ray's default rule: instrumented callers request it every time
TRACES_AT_ONCE = 10  # burst after an idle period: a manual test is traced completely
APPEND_ATTEMPTS_MAX = 8  # each failure means a filler overtook us; eight in a row is an outage

# --- reading ---------------------------------------------------------------------------------
READ_ITEMS_MAX = 4_000  # small items fill a megabyte; without a limit DynamoDB Local reads them all
READ_PAGES_BYTES_MAX = 1024 * 1024  # the maximum that one DynamoDB Query returns
NEAR_PAGES = 64  # from the last seen end: a read that finds the end costs one request, not two
PIECE_CHARS = 128 * 1024  # of a stream, sent at once: a read may hold 20 MB of unpacked text
STREAM_S_MIN = 60  # below it, clients would treat each end of a stream as a failure and back off
STREAM_S_MAX = 840  # Lambda ends a function after 15 minutes; a stream ends before, between events
STREAM_RESUME_MS = 500  # browser reconnect delay: hardly noticeable, no busy loop in an outage
STREAM_BYTES_MAX = 180_000_000  # Lambda cuts at 200 MB, at any byte; the last piece may be large
TAIL_BYTES_MAX = 8 * 1024 * 1024  # cached for streams near the frontier; others read the log
TAIL_PAGE_BYTES = 400  # memory for the objects of a cached page, in addition to its text
HOLE_GRACE_MS = 2000  # a writer needs some 10 ms between number and page; later it is overtaken
HOLE_LOST_MS = 24 * 3600 * 1000  # no page expires earlier: an older hole may be an expired page
WRITE_MS_MAX = 30_000  # from a page's number or timestamp to its write: requests end within it
CLOCK_SKEW_MS_MAX = 60_000  # writers' clocks are within this of each other (AWS: milliseconds)
STAMP_DISORDER_MS = CLOCK_SKEW_MS_MAX + WRITE_MS_MAX  # how much older a later page may be
CURSOR_CHARS_MAX = 64  # a longer id is rejected before it is parsed

# --- filters ---------------------------------------------------------------------------------
FILTER_VALUES_MAX = 100  # each value is one item of the subscription index
FEED_NAME_CHARS_MAX = 63  # as a DNS label, to be part of a host name; the same for consumers

# --- followers -------------------------------------------------------------------------------
HOLE_POLL_MS = 100  # how often a waiting follower checks if the hole has closed
FOLLOW_OPERATIONS_MAX = 10_000  # per batch: a second's work; a read may hold 100,000 packed ones
FOLLOW_OPERATIONS_FIRST = 1_000  # of a run's first batch: a slow store handles them within its time
FOLLOW_CAUTION = 16  # the first batch after a crashed holder is smaller by this factor
FOLLOW_TURN_MS = 2_000  # a slower batch halves the next one; one in half of it doubles the next one
FOLLOW_RUN_MS = 10_000  # one run yields after this, so that the lease can move to another process
FOLLOW_TIMEOUT_S = 15  # Lambda kills a run here
LEASE_MS = 20_000  # unchanged for this time, a lease may be taken over: longer than any run
LEASE_LATE_MS = 5_000  # without a renewal another process starts to observe: a batch takes 1 to 2 s
LEASE_LOOK_MS = 10_000  # one function observes for this time, then wakes the next: half of LEASE_MS
LEASE_LOOK_AGAIN_MS = 60_000  # an observer's wake-up may be lost: then another process starts over

NOTE_BYTES_MAX = 570  # stored with a checkpoint: its whole item stays below one write unit, 1 KB

SWEEP_EVERY_MS = 60_000  # the interval of the schedule
SWEEP_ERRORS_MAX = 20  # raised together: their tracebacks become one log line
SWEEP_PAGE = 2_000  # items of the connection table per read, some 0.4 MB; then due work is done
SWEEP_PAGES_MAX = 100  # per sweep: 100,000 connections with one filter key each, 40 MB
SWEEP_LOOK_MS = 35_000  # a sweep starts no page later than this: Lambda kills it after 55 s

# --- alarms ----------------------------------------------------------------------------------
LAG_PAGES_MAX = 1_000  # 1 s of the fastest feed, a day of a slow one: an alarm if it persists
FOLLOWER_AGE_S_MAX = 900  # of a page not handled: retries and takeovers take a minute or two
WAKE_LATE_MS = 30_000  # a stream wakes a follower within a second: the sweep finds missed wake-ups
UPSTREAM_AGE_S_MAX = 120  # retries come each minute, so the second one has failed too
ARCHIVE_LAG_S_MAX = 1_800  # pages wait for a quarter of an hour; runs of a busy feed take some time
REMIND_MS = 24 * 3600 * 1000  # of conditions that may last for days: one reminder per day suffices
OUTBOX_AGE_S_MAX = 300  # a message is forwarded within a second, or by one of five sweeps

# --- archive ---------------------------------------------------------------------------------
ARCHIVE_PART_BYTES = 8 * 1024 * 1024  # of text, 1 MB compressed: a reader holds a part, in 512 MB
# The size of an unpacked part: its last page may end far above the size that completes a part.
ARCHIVE_UNPACKED_BYTES_MAX = 2 * ARCHIVE_PART_BYTES + PAGE_TEXT_BYTES_MAX  # twice: room for numbers
ARCHIVE_PAGES = 1_000  # this many waiting pages fill a part if a page holds some 8 KB of text
ARCHIVE_PART_OPERATIONS = 80_000  # small operations, of as many bytes; compression takes a second
ARCHIVE_STEP_BYTES = 2 * 1024 * 1024  # of text, sent at once: some twenty messages
ARCHIVE_LISTED = 1_000  # spans at once, as S3 lists them; 17 hours at a part per minute
ARCHIVE_LISTS_MAX = 20  # searched for holes before a replay: two seconds; the rest during it

# --- push ------------------------------------------------------------------------------------
FEW_SUBSCRIPTIONS = 100  # read at once: 8 units, as two operations' lookups; none at all: 1 unit
INDEX_MS = 60_000  # of page time, until a feed that exceeded FEW_SUBSCRIPTIONS is checked again
LOOK_UPS_MAX = 400  # per batch, sequential: two seconds; above it all are read, 8,000 a query
JOIN_READS_MAX = 10  # per subscription, some 10 MB: one that lags more reconnects and replays
PUSH_LANES_MAX = 32  # 2,000 messages a second each: far above what API Gateway gives an account
LANE_DRAIN_MS = 600_000  # of page time in which removed lanes are still woken, also by the sweep
CHANGES_MAX = 200  # subscriptions that a batch accepts: a second of it; a thousand come at once
DELIVERIES_MAX = 100_000  # per batch of more than one page: some 20 MB, two seconds of a run
FRAME_BYTES_MAX = 120_000  # API Gateway rejects a message above 128 KB and bills per 32 KB
GZIP_BYTES_MIN = 400  # minimum size to compress: for one operation base64 cancels the gain
SEND_ATTEMPTS_MAX = 4  # a client that is busy for longer resumes from its cursor instead
MESSAGE_BYTES_MAX = 32 * 1024  # one frame from a client (API Gateway disconnects above it)
SEND_BACKOFF_MS = 50  # doubles with each attempt: 350 ms in all, so one client cannot delay a run
SENDS_FIRST = 16  # concurrent at first, until sends succeed: a handshake takes 1 ms of CPU
SENDS_MAX = 256  # 12,800 a second at 20 ms per response: more than a core can sign
SEND_PAUSE_MS_MAX = 800  # of a sender that is throttled again: doubled from SEND_BACKOFF_MS
SEND_ANSWERS = 64  # after this many successful sends, earlier throttling is forgotten
SEND_REFUSED_FEW = 4  # up to this number are slow clients; more mean that all sends are throttled
SEND_THROTTLED_MS = 5_000  # after such a sign each refusal counts as throttling: it is intermittent
SEND_PATIENCE_MS = 3_000  # without any success: half of the time left after a follower's run
IDLE_TOLD_MAX = 1_000  # notified between two pages: a tenth of a second of sends
TELL_EVERY_MS = 3_000_000  # how often idle connections get the moved cursor, within retention
REPLAY_RUN_MS = 20_000  # one replay yields after this
REPLAY_TIMEOUT_S = 30  # Lambda kills a replay here
REPLAY_LEASE_MS = 100_000  # outlives any replay, although one clock writes it and another reads it
CONNECTION_MS_MAX = 2 * 3600 * 1000 + 600_000  # API Gateway closes after 2 h; then it is forgotten

# --- state -----------------------------------------------------------------------------------
BUCKETS = 64  # partitions of the state; each takes 1,000 writes a second
COPY_PART_ROWS = 128  # live ones, sent again at most after a copy was cut; 4 million a bucket
COPY_STEP_ROWS = 500  # one step of a copy: fills a message, and small states take one step
SUM_TYPES_MAX = 8  # types with sums of their own: 512 bytes each, 5 write units for all of them
SUM_CHANGES_MAX = 56  # of sums in a note, 10 bytes each: above it the sums are stored
SUMS_WANTED_MS = 3_600_000  # after the last request; chained feeds request six times in it
SUM_COUNT_ROWS = 2_000  # counted between two reads of the log: some hundredths of a second
TOMBSTONE_SLACK_MS = 7 * 24 * 3600 * 1000  # deleted objects are kept a week longer than the log

# --- corrections -----------------------------------------------------------------------------
CORRECT_SECTION = 10_000  # looked up together: each reads the log since the state's checkpoint
CORRECT_SECTION_BYTES = 16 * 1024 * 1024  # held at once, with the objects that they concern
CORRECT_BATCH_BYTES = 370_000  # deflated or not it fits a page, so no number is wasted
CORRECT_POLL_MS = 50  # while our number blocks readers
CORRECT_POLLS_MAX = 20  # one second: below HOLE_GRACE_MS, so that no other process fills our number
CORRECT_YIELD_POLLS_MAX = 100  # five seconds without a number: a hole is overdue after two
CORRECT_RUN_MS = 240_000  # one run yields after this; a batch takes some 50 ms
AMEND_RUN_MS = 10_000  # as CORRECT_RUN_MS, but in a request: an HTTP API times out after 30 s
AMEND_TIMEOUT_S = 29  # a last batch may wait for a writer; a retry finds what was applied
CORRECT_TIMEOUT_S = 300  # Lambda kills a run here
LOOKUP_KEYS_MAX = 1000  # per request: with the longest keys they fit REQUEST_BYTES_MAX
LOOKUP_KEYS = 25  # read at once: the longest lines and a full reply, escaped, are below 6 MB
LIVE_LOOKS_MAX = 5  # reads of a row that keeps changing: then its owner decides about it

# --- bounds of producers ---------------------------------------------------------------------
BOUND_POLL_MS = 50  # as for a correction: our number blocks readers in the meantime
BOUND_POLLS_MAX = 20  # one second: below HOLE_GRACE_MS, so that no other process fills our number

# --- verifying ------------------------------------------------------------------------------
VERIFY_LOOK_MS = 1_000  # maximum age of a checkpoint: later changes make a bucket differ
REPAIR_BATCH = 1_000  # rows repaired together: a second's work, with progress reports in between

# --- syncs in the cloud ----------------------------------------------------------------------
SYNC_APPLIERS_MAX = 2  # one appends as fast as a state is projected, another reads in the meantime
SYNC_EXPORT_BYTES = 10 * 1024**3  # of the state; to scan less takes minutes and a third of a dollar
SYNC_APPROVAL_S = 3 * 24 * 3600  # a weekend; a plan expires after half the life of a tombstone
SYNC_JOB_MINUTES = 12 * 60  # 100,000,000 objects took five minutes on two cores: far above
SYNC_CAUSE_CHARS = 1000  # of an error in a report: its sentence, without pages of stack trace
DUMP_ADDRESS_CHARS_MAX = 1100  # a key has at most 1,024 bytes, a bucket's name 63

# --- status ----------------------------------------------------------------------------------
COUNT_SOON_MS = 1_000  # after a client came or left: prompt, but not for each of a thousand
COUNT_EVERY_MS = 20_000  # otherwise; two write units per process, besides its five reads a second
PRESENCE_MS = 45_000  # two counter writes may fail; a killed process is forgotten after this
SWEPT_PRESENCE_MS = 130_000  # the sweep counts each minute; one run may be missed
LAG_MS_MAX = 120_000  # two sweeps have woken it since: this follower is down or too slow
STATUS_READS_MAX = 4  # 1 MB each, to find the frontier after stopped followers
STATUS_AGE_MS = 1_000  # public, without a password: any number of clients cost one report a second

# --- retention -------------------------------------------------------------------------------
RETENTION_MS_MIN = 3600 * 1000  # far above any function's time limit: no writer is that slow
TOMBSTONE_MS_MIN = RETENTION_MS_MIN + TOMBSTONE_SLACK_MS  # no retention makes their life shorter
TTL_SLACK_MS = 24 * 3600 * 1000  # how long the sweep may be down before a page expires unprocessed
RENEW_WITHIN_MS = 12 * 3600 * 1000  # of its expiry a page is renewed: a sweep may fail for hours
RENEW_EVERY_MS = 3 * 3600 * 1000  # one round: retained pages are checked four times before expiry
RENEW_PAGES_MAX = 20_000  # per minute, as a query returns them: seven seconds with 16 threads
CLAIM_MS = 24 * 3600 * 1000  # how long an Idempotency-Key is remembered

# --- what a feed's owner sets ----------------------------------------------------------------
PROFILE_AGE_MS = 4_000  # delay until a change takes effect: guaranteed are 5 s; 0.25 RRU a second
SHARED_S = 1  # of a response in a cache: with PROFILE_AGE_MS within the guaranteed 5 s
OBJECT_URL_CHARS_MAX = 1024  # far longer than any link in use; it is sent with every event
PASSWORDS_MAX = 2  # the old and the new one, while clients move from one to the other
PASSWORD_BYTES_MIN = 8  # shorter ones are guessed easily, even at one guess per 15 ms of our CPU
PASSWORD_BYTES_MAX = 256  # base64-encoded with a user name it stays far below header limits
VERIFIED_MAX = 64  # two passwords for each role of sixteen feeds; a digest has 32 bytes

# --- guesses ---------------------------------------------------------------------------------
MISSES_MS = 10_000  # counting window: a user with a typing error may retry soon
MISSES_MAX = 50  # per feed, process and window: 2.5 s of hashing, or 100 reads of keys
USER_MISSES_MAX = 10  # bcrypt takes 290 ms per guess, so this takes as long as MISSES_MAX

# --- keys ------------------------------------------------------------------------------------
KEY_AGE_MS = 4_000  # delay of a revocation: guaranteed are five seconds; 0.5 RRU per read
KEYS_KNOWN_MAX = 4_096  # per process: some 2 MB; an evicted key is read again
KEY_RATE_MAX = 10_000  # requests a second: more than a feed can handle
KEY_WINDOW_MS = 10_000  # in which processes agree on a rate: ten times the interval of their writes
KEY_READ_SIZE = 1024 * 1024  # as stored, read for a key, counts as a request: characters or bytes
KEY_COUNT_MS = 120_000  # lifetime of a window's count: clocks differ by less than a minute
KEY_STREAMS = 40  # at once, if a key sets no limit: a tenth of the capacity of size prod
KEY_STREAMS_MAX = 1_000  # the default concurrency quota of an AWS account
STREAM_HOLD_MS = 15 * 60_000  # no function lives longer: the slot of a crashed one expires then
STREAM_HELD_RETRY_S = 30  # when to retry opening a stream: another one may have ended
KEY_LABEL_CHARS_MAX = 200  # of a label, and of a key's creator: one line of a list
KEY_KEPT_MS = 30 * 24 * 3600 * 1000  # a key that ended is listed for a month, then it is deleted
ENDED_MAX = 1_000  # ended keys that a profile lists, to disconnect clients: 25 KB, 7 RRU at most

# --- changes ---------------------------------------------------------------------------------
CHANGE_SLOT_BITS = 10  # 1,024 slots hold any page; 43 bits are left for pages below 2^53
CHANGES_LIMIT = 100  # as changeagent's default
CHANGES_LIMIT_MAX = 2**32 - 1  # the range of changeagent's numbers; bytes limit a reply
CHANGES_BYTES_MAX = 4 * 1024 * 1024  # per reply; Lambda buffers 6 MB, and JSON must fit memory
LIST_TIMEOUT_S = 30  # an HTTP API times out then; a wait ends earlier, see below
CHANGES_BLOCK_S_MAX = 25  # an HTTP API times out after 30 s; a client sends the next request
CHANGES_HOLE_S = 3  # a hole is closed by then, and the entries after it were acknowledged
CHANGES_SCAN_MS = 15_000  # of one reply, in search of a rare tag; the cursor moves, nothing is lost
CHANGES_FIRST_PAGES = 4  # of the first read; each next one is four times as large
CHANGES_FIRST_SUMMARIES = 16  # of the first read of the index; each next one is four times as large
HEAD_AGE_MS = 1_000  # a reply from within the log reports a head of at most this age
HEAD_PAGES_MAX = 64  # read in search of the head, after the followers' checkpoints

# --- index of tags ---------------------------------------------------------------------------
SUMMARY_PAGES = 64  # summarized together: one write unit in 64 if a page holds one entry
SUMMARY_TAGS = 1000  # or as soon as this many are reached: 1.5 KB, a page of 1,000 operations
SUMMARY_BITS = 12  # of each tag: 0.3 % of the data read for it does not have it
INDEX_EVERY = 15  # minutes that a partial summary waits: in the meantime, it is read from the log
INDEX_RUN_MS = 40_000  # one run yields after this; the next one starts within a minute
INDEX_TIMEOUT_S = 55  # Lambda kills a run here
FORWARD_RUN_MS = 40_000  # one run of the outbox yields after this; it is killed after 55 s

# --- listeners -------------------------------------------------------------------------------
RESOURCES_MAX = 32  # per feed; each is sent with every list of them, and stored in its profile
MAX_AGE_S_MIN = 60  # the sweep runs once a minute; followers limit the floor in any case
VERSION_MAX = 999_999_999  # of a registration: two exist; the text is measured before parsing
INSTANCE_BYTES_MAX = 512  # with a resource it must fit DynamoDB's 1,024 B sort key
SERVICE_BYTES_MAX = 1024  # a name for people, stored with each resource that is registered
REGISTERING_MS = 75_000  # outlives the function that replies, see REPLAY_LEASE_MS
OBJECTS_MAX = 1000  # per page of a bootstrap: some hundred kilobytes
OBJECTS_BYTES_MAX = 2 * 1024 * 1024  # per page; Lambda responses hold at most 6 MB
CAPTURE_BYTES = 370_000  # per page of writes: deflated or not it fits, so its size rejects none
OBJECTS_READS_MAX = 64  # per page: every bucket of a small state, two seconds of a large one

# --- named consumers -------------------------------------------------------------------------
CONSUMERS_MAX = 100  # per feed: one query lists them, once a minute
CONSUMER_LEASE_MS = 30_000  # a worker renews it with each acknowledgement, at least three times
WORKER_CHARS_MAX = 128  # a host, a process and something random
CONSUMER_SPANS_MAX = 1000  # acknowledged out of order: 30 KB, thirty write units at worst
ACK_IDS_MAX = 1000  # per request: a batch of as many as one page may hold
ACK_PAGES_MAX = 64  # with the entries of a request: each is read, to verify that they exist
ADVANCE_PAGES = 16  # read at once in search of the first unacknowledged entry
ADVANCE_READS_MAX = 4  # per request in that search; the next request continues from there
UPCOMING_READS_MAX = 256  # of an operator's step, which waits: two seconds, for a rare type
PARKED_MAX = 90  # per consumer: with the consumer and a note they fit one transaction of 100
ERROR_CHARS_MAX = 1000  # of a worker's error: its sentence, without pages of stack trace
WHY_CHARS_MAX = 500  # an operator's reason
NOTES_MAX = 100  # returned at once, the latest first
NOTE_MS = 365 * 24 * 3600 * 1000  # a year: long enough for an audit
LOG_ENTRIES_MAX = 1000  # of the log, returned at once
LOG_BYTES_MAX = 2 * 1024 * 1024  # returned at once; Lambda responses hold at most 6 MB
CONSUMER_ATTEMPTS_MAX = 5  # each failure means that a worker or operator wrote at the same moment

# --- chained feeds --------------------------------------------------------------------------
SHARE_PARTS_MAX = 4096  # into which a feed may be divided: more would be a list, not a rule
PORTION_BYTES = 1024 * 1024  # per reply of whole pages, unless the request has another size
PORTION_BYTES_MAX = 4 * 1024 * 1024  # the maximum: Lambda responses hold at most 6 MB
PORTION_BYTES_MIN = 4 * PAGE_BYTES_MAX  # requested by a relay: every page fits, deflated or not
STATE_KEY_BYTES_MAX = 1024  # DynamoDB's limit for a key; the position in rows is such a key
PORTION_PAGES_MAX = 90  # with the relay itself and the head they fit one transaction of 100
PORTION_BLOCK_S_MAX = 20  # of a reply that waits for news: shorter than any gateway timeout
RELAY_POLL_S = 2  # as above, with leader election: the lease is renewed between two replies
RELAY_LEASE_MS = 45_000  # outlives a reply that waits, with its time limit: see LEASE_MS
RELAY_RUN_MS = 240_000  # one run of a relay yields after this and wakes the next
RELAY_TIMEOUT_S = 300  # RELAY_RUN_MS and the last reply
RELAY_BACKOFF_MS = 500  # before the second attempt, doubled with each
RELAY_BACKOFF_MS_MAX = 60_000  # the maximum: a recovered upstream is noticed within a minute
RELAY_TELL_MS = 10_000  # how often a relay without news is written: 0.1 WRU a second
RELAY_COMPARE_MS = 600_000  # between two comparisons with the upstream's sums: one request
RELAY_COMPARE_WAITS = 10  # seconds that pages may wait until both states are at the same page
RELAY_COUNT_ROWS_MAX = 50_000  # of a bucket, read in seconds: a state of 3,200,000 objects
RELAY_WRITE_BYTES = 3_500_000  # of pages: a transaction holds 4 MB, with names and the rest
LEADER_LEASE_MS = 4_000  # a leader that does not renew within this time has lost the lease
LEADER_LEASE_RENEW_MS = 1_000  # three renewals may be lost
LEADER_LEASE_FAILURES = 3  # of a leader in a row: some four seconds; another member may do better
LEADER_LEASE_REST_MS = 30_000  # before a leader that gave up retries: other members had a chance
MEMBER_MS = 30_000  # a cluster member without a sign of life for this time is shown as gone
LEADERS_MAX = 8  # of a cluster: each reads the master
VIA_MAX = 32  # feeds in a chain of copies: a longer one is a mistake

# --- outgoing webhooks -----------------------------------------------------------------------
WEBHOOKS_MAX = 50  # per feed: each is a named consumer, and all are one document of 100 KB
WEBHOOK_URL_CHARS_MAX = 1024  # proxies cut longer ones
WEBHOOK_S = 15  # response timeout, as in Standard Webhooks; half of a lease's duration
WEBHOOK_AT_ONCE = 8  # of different objects, concurrent to one endpoint: 80 a second at 100 ms each
WEBHOOK_SECRET_BYTES = 32  # of a generated secret; Standard Webhooks allows 24 to 64
WEBHOOK_ROTATION_MS = 24 * 3600 * 1000  # for a day a replaced secret signs along with the new one
WEBHOOK_ATTEMPTS_MAX = 10  # per message: within 75 hours, by the delays of Standard Webhooks
WEBHOOK_TURN_MS = 10_000  # per endpoint, before the next one; an attempt may exceed it

# --- durable streams -------------------------------------------------------------------------
STREAM_PRODUCERS_MAX = 100  # remembered per stream: 8 KB, written with each append by a producer
STREAM_PAGES_MAX = 1_000  # per response: each is a read of 30 us, and a reader continues
STREAM_WAIT_S = 20  # of a long poll: gateways and proxies time out after 30 s
STREAM_LIVE_S = 60  # of an event stream, as in the protocol; then its reader resumes
STREAM_SAID_S = 20  # without news, the offset is sent again this often: proxies cut after 30 s
STREAM_CURSOR_S = 20  # how long responses for one offset have the same cursor, as in the protocol
STREAM_CURSOR_DIGITS_MAX = 15  # of a cursor that a client returns; ours have eight

# --- connections of a server -----------------------------------------------------------------
HEAD_BYTES_MAX = 64 * 1024  # of a request line with its fields; browsers send at most a few KB
HEAD_FIELDS_MAX = 256  # of a head, and of trailers: browsers and three proxies send fifty
HEAD_S = 10.0  # to send a head or finish a TLS handshake: seconds on the worst mobile network
KEEP_ALIVE_S = 75.0  # an idle connection stays open: proxies reuse one for 60 s
STALL_S = 20.0  # a client may stop reading for this time; after a cut it resumes
CLOSE_S = 5.0  # to read the end of a response before the connection is reset
SUBSCRIBE_S = 60.0  # of a WebSocket until it subscribes: clients do at once, a person types longer
LINGER_S = 10.0  # to finish a rejected body: a reset would destroy the response
PIPELINED_MAX = 32  # requests waiting on one connection for an earlier response; browsers send one
FILES_MAX = 65_536  # file descriptors requested by a process: 64 KB of buffers each are 4 GB
FILES_RESERVED = 512  # of them for outgoing connections, and two for each thread that reads
BODY_S = 60.0  # to send a body: the largest one at 170 KB a second
BODY_IDLE_S = 20.0  # without a byte of a body, as long as a reader may stall
BODIES_BYTES_MAX = 128 * 1024 * 1024  # of bodies in memory at once: 12 of the largest, 100 of posts

# --- restoring ------------------------------------------------------------------------------
NUMBERS_PER_S_MAX = 10_000  # a server commits about as many pages; a counter of DynamoDB 1,000
PAGE_NUMBER_MAX = 2**40 - 1  # ten hex digits of an event id
JUMPS_MIN = 64  # a jump takes this part of the remaining numbers: 2^34 at first, a log of terabytes
LOST_RANGES_MAX = 100  # a profile is read with each cursor; older ranges are merged

# --- documents of operators ------------------------------------------------------------------
DOCUMENT_AGE_MS = 4_000  # delay until a change takes effect; guaranteed are five seconds
DOCUMENT_BYTES_MAX = 256 * 1024  # an item holds 400 KB; three thousand users
USERS_MAX = 2_000  # some 80 bytes per user
CONFIGURATION_BYTES_MAX = 64 * 1024  # HOOKS_MAX with long addresses and headers, many times
HOOKS_MAX = 10  # called at once, for each change
HOOK_S = 10  # for all responses together: an HTTP API times out after 30 s
BCRYPT_COST_MAX = 14  # above it one check takes a second of a core

# --- tokens of an issuer -------------------------------------------------------------------------
TOKEN_LEEWAY_S = 60  # two clocks with NTP differ by less than a second; others by more
TOKEN_GRANTS_MAX = 100  # a token fits a header, 10 KB: each grant has some 80 bytes
