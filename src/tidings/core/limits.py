"""The limits of the feed, each with its reason.

The comment after a limit says what is limited, and why the value is chosen. Sizes are bytes of
UTF-8 unless the name says otherwise. Times have their unit in the name. Page time is the difference
between the commit times of pages.
"""

from __future__ import annotations

# --- what one operation may hold -------------------------------------------------------------
TYPE_BYTES_MAX = 128  # escapes may triple a type; type and id must fit in a sort key of 1,024 B
ID_BYTES_MAX = 512  # an escaped type, a separator and an id fit in a sort key: 3 * 128 + 1 + 512
PARENT_BYTES_MAX = 640  # fits `type/id` of any object, unless its type and id are very long
PARENTS_MAX = 64  # parents of an operation; each is one index lookup when the operation is pushed
TAGS_MAX = 32  # tags of an operation, far more than any producer needs; each is stored and sent
JSON_DEPTH_MAX = 32  # deeper input is rejected before it can exhaust the parser's stack
JSON_PARTS_MAX = 64 * 1024  # brackets and commas of a value, as OPERATION_BYTES_MAX holds no more
OPERATION_BYTES_MAX = 64 * 1024  # two operations fit in a WebSocket message (128 KB, API Gateway)

# --- what one request may hold ---------------------------------------------------------------
REQUEST_OPERATIONS_MAX = 1000  # one request is one page, so it is appended completely or not at all
REQUEST_BYTES_MAX = 1024 * 1024  # below Lambda's 6 MB; the compressed page must fit PAGE_BYTES_MAX
GZIP_MEMBERS_MAX = REQUEST_OPERATIONS_MAX  # a producer may compress each operation by itself
GZIP_BYTES_MORE = 64 * 1024  # gzip adds 23 B to 64 KB that it cannot compress, and 20 B per member
IDEMPOTENCY_KEY_CHARS_MAX = 128  # a UUID has 36; the key becomes part of a sort key

# --- pages -----------------------------------------------------------------------------------
PAGE_BYTES_MAX = 380_000  # a DynamoDB item holds 400 KB; the rest is for its other attributes
# A page that is larger after decompression is refused as damaged.
PAGE_TEXT_BYTES_MAX = REQUEST_OPERATIONS_MAX * (OPERATION_BYTES_MAX + 1)  # one line per operation
PAGE_PLAIN_BYTES_MAX = 900  # smaller pages are not compressed, as each takes one write unit (1 KB)
TRACES_PER_S = 1  # traces per process and second, as by default in X-Ray; some callers request all
TRACES_AT_ONCE = 10  # traced requests in a burst after an idle period, enough for a manual test
APPEND_ATTEMPTS_MAX = 8  # attempts; each fails if a filler was faster; eight failures are an outage

# --- reading ---------------------------------------------------------------------------------
READ_ITEMS_MAX = 4_000  # items per query; 4,000 small ones fill 1 MB, where DynamoDB ends a query
READ_PAGES_BYTES_MAX = 1024 * 1024  # size of the pages in one read, the maximum of a DynamoDB query
SERVER_READ_BYTES_MAX = 128 * 1024  # the same of a server; a stream that catches up has two reads
NEAR_PAGES = 64  # reads this close to the known end are strongly consistent, to save a second read
PIECE_CHARS = 128 * 1024  # size of the pieces of a stream; one read may return some MB of text
STREAM_S_MIN = 60  # clients treat the end of a shorter stream as a failure, and back off
STREAM_S_MAX = 840  # a stream ends between events, before Lambda ends its function at 15 minutes
STREAM_RESUME_MS = 500  # reconnect delay of browsers: hardly noticeable, and no load in an outage
STREAM_BYTES_MAX = 180_000_000  # size of a stream, plus one piece; Lambda cuts a response at 200 MB
TAIL_BYTES_MAX = 8 * 1024 * 1024  # pages cached for streams near the frontier; others read the log
TAIL_PAGE_BYTES = 400  # memory for the objects of a cached page, in addition to its text
HOLE_GRACE_MS = 2000  # an older hole is filled; a writer writes the page 10 ms after its number
HOLE_LOST_MS = 24 * 3600 * 1000  # an older hole may be an expired page; no page expires earlier
WRITE_MS_MAX = 30_000  # time from a page's number or timestamp to its write; requests are shorter
CLOCK_SKEW_MS_MAX = 60_000  # clocks of hosts differ by at most this (on AWS by milliseconds)
STAMP_DISORDER_MS = CLOCK_SKEW_MS_MAX + WRITE_MS_MAX  # a later page may have an earlier timestamp
CURSOR_CHARS_MAX = 64  # a longer id is rejected before it is parsed

# --- filters ---------------------------------------------------------------------------------
FILTER_VALUES_MAX = 100  # values in a field of a filter; each is an item of the subscription index
FEED_NAME_CHARS_MAX = 63  # length of a label in a host name; also the limit for names of consumers

# --- followers -------------------------------------------------------------------------------
HOLE_POLL_MS = 100  # interval at which a waiting follower checks if the hole has closed
FOLLOW_OPERATIONS_MAX = 10_000  # operations per batch: a second of work; a read may return 100,000
FOLLOW_OPERATIONS_FIRST = 1_000  # operations of a run's first batch; slow stores handle it in time
FOLLOW_CAUTION = 16  # the first batch after a crashed holder is smaller by this factor
FOLLOW_TURN_MS = 2_000  # a slower batch halves the next batch; a batch in half this time doubles it
FOLLOW_RUN_MS = 10_000  # a run ends after this time, so that another process can take the lease
FOLLOW_TIMEOUT_S = 15  # Lambda kills a run of a follower after this time
LEASE_MS = 20_000  # a lease that is unchanged for this time may be taken over; no run takes longer
LEASE_LATE_MS = 5_000  # a lease that is not renewed for this time is observed; a batch takes 2 s
LEASE_LOOK_MS = 10_000  # a function observes a lease for this time, then wakes the next function
LEASE_LOOK_AGAIN_MS = 60_000  # after this time, the lease is observed again; a wake-up may be lost

NOTE_BYTES_MAX = 570  # a follower's note; its item, with the checkpoint, costs a write unit (1 KB)

SWEEP_EVERY_MS = 60_000  # the interval of the sweep's schedule
SWEEP_ERRORS_MAX = 20  # errors that a sweep reports, because their tracebacks become one log line
SWEEP_PAGE = 2_000  # items of the connection table per read (0.4 MB), after which due work is done
SWEEP_PAGES_MAX = 100  # reads per sweep: 100,000 connections with one filter key each, 40 MB
SWEEP_VISITS_MS = 25_000  # a sweep visits no further feed then: some 400 of a stage, at 12 requests
SWEEP_LOOK_MS = 35_000  # a sweep starts no read later than this; Lambda kills it after 55 s

# --- alarms ----------------------------------------------------------------------------------
LAG_PAGES_MAX = 1_000  # a larger lag that persists is an alarm; the fastest feed writes it in 1 s
FOLLOWER_AGE_S_MAX = 900  # highest age of an unhandled page; retries and takeovers take minutes
WAKE_LATE_MS = 30_000  # age of a page at which a wake-up counts as missed; wake-ups take a second
UPSTREAM_AGE_S_MAX = 120  # time since a read of the upstream; two retries in this time have failed
ARCHIVE_LAG_S_MAX = 1_800  # age of an unarchived page; it waits 15 minutes, and a run takes time
REMIND_MS = 24 * 3600 * 1000  # time between two reports of a condition that lasts for days
OUTBOX_AGE_S_MAX = 300  # age of a waiting message; by then, five sweeps have woken the forwarder

# --- archive ---------------------------------------------------------------------------------
ARCHIVE_PART_BYTES = 8 * 1024 * 1024  # text of a part, 1 MB compressed; readers have 512 MB
# A larger decompressed part is refused as broken. The text of a part is at most as long as
# ARCHIVE_PART_BYTES, or as one page. Each page adds a line with its number.
ARCHIVE_UNPACKED_BYTES_MAX = 2 * ARCHIVE_PART_BYTES + PAGE_TEXT_BYTES_MAX  # see the comment above
ARCHIVE_PAGES = 1_000  # this many pages are archived without delay; at 8 KB each, they fill a part
ARCHIVE_PART_OPERATIONS = 80_000  # operations per batch of `archive`: compressing takes a second
ARCHIVE_STEP_BYTES = 2 * 1024 * 1024  # text sent in one step, some twenty messages
ARCHIVE_CACHE_MS = 60_000  # a cached part may have content that was erased in this time
ARCHIVE_LISTED = 1_000  # parts per listing, as in S3; 17 hours at a part per minute
ARCHIVE_LISTS_MAX = 20  # listings searched for gaps before a replay, in two seconds

# --- push ------------------------------------------------------------------------------------
FEW_SUBSCRIPTIONS = 100  # up to this number, all subscriptions are read at once, for 8 read units
INDEX_MS = 60_000  # page time until a feed that exceeded FEW_SUBSCRIPTIONS is checked again
LOOK_UPS_MAX = 400  # lookups per batch, in two seconds; for more, all subscriptions are read
JOIN_READS_MAX = 10  # reads of pages that a joining client missed, 10 MB; for more, it reconnects
PUSH_LANES_MAX = 32  # a lane sends 2,000 messages a second; 32 exceed API Gateway's quota by far
FORGET_AFTER_DAYS_MAX = 3650  # ten years, as long as most duties to keep data
FORGET_EVERY = 60  # the sweep looks for old deletions once in this many sweeps, an hour
FORGET_PAGES = 64  # pages that are read at once in search of old deletions, up to 20 MB
LANE_DRAIN_MS = 600_000  # page time in which removed lanes are still woken, also by the sweep
CHANGES_MAX = 200  # new subscriptions that a batch handles, in a second; the others wait
DELIVERIES_MAX = 100_000  # a batch with this many deliveries gets no more pages: 20 MB, in 2 s
FRAME_BYTES_MAX = 120_000  # API Gateway rejects a message above 128 KB and bills per 32 KB
GZIP_BYTES_MIN = 400  # minimum size to compress; in smaller messages base64 cancels the gain
SEND_ATTEMPTS_MAX = 4  # attempts to send to a busy client, which must then resume from its cursor
MESSAGE_BYTES_MAX = 32 * 1024  # a client's message, in one frame; API Gateway disconnects above it
SEND_BACKOFF_MS = 50  # pause before a second attempt, then doubled: 350 ms in all for one client
SENDS_FIRST = 16  # concurrent sends until one succeeds; a TLS handshake takes 1 ms of CPU
SENDS_MAX = 256  # concurrent sends: 12,800 a second at 20 ms each, more than a core can sign
SEND_PAUSE_MS_MAX = 800  # maximum pause of a throttled sender, doubled from SEND_BACKOFF_MS
SEND_ANSWERS = 64  # after this many successful sends, earlier throttling is forgotten
SEND_REFUSED_FEW = 4  # this many refusals are slow clients; more mean that all sends are throttled
SEND_THROTTLED_MS = 5_000  # for this time after throttling, each refusal counts as throttling
SEND_PATIENCE_MS = 3_000  # time without a successful send after which refused connections are cut
IDLE_NOTIFIED_MAX = 1_000  # idle connections notified between two pages, in a tenth of a second
IDLE_CURSOR_MS = 3_000_000  # interval at which idle connections get the cursor, within retention
REPLAY_RUN_MS = 20_000  # one run of a replay ends after this time
REPLAY_TIMEOUT_S = 30  # Lambda kills a replay after this time
REPLAY_LEASE_MS = 100_000  # lease of a replay: longer than a replay and the difference of clocks
CONNECTION_MS_MAX = 2 * 3600 * 1000 + 600_000  # API Gateway closes a connection after 2 hours

# --- state -----------------------------------------------------------------------------------
BUCKETS = 64  # partitions of the state; each accepts 1,000 writes a second
COPY_PART_ROWS = 128  # maximum number of objects that an interrupted copy sends again
COPY_STEP_ROWS = 500  # rows in one step of a copy, which fill a message
SUM_TYPES_MAX = 8  # types with their own sums, of 512 bytes each; all sums take 5 write units
SUM_CHANGES_MAX = 56  # changes of sums in a note, 10 bytes each; for more, the sums are stored
SUMS_WANTED_MS = 3_600_000  # sums are maintained this long after a request; relays send six an hour
SUM_COUNT_ROWS = 2_000  # rows counted between two reads of the log, in some 50 ms
TOMBSTONE_SLACK_MS = 7 * 24 * 3600 * 1000  # deleted objects are kept a week longer than the log

# --- corrections -----------------------------------------------------------------------------
CORRECT_SECTION = 10_000  # objects looked up together; each section reads the log after the state
CORRECT_SECTION_BYTES = 16 * 1024 * 1024  # lines of a section, which are in memory with the rows
CORRECT_BATCH_BYTES = 370_000  # lines of a batch; they fit a page uncompressed: no number is wasted
CORRECT_POLL_MS = 50  # interval of polls for an earlier page; short, because readers wait as well
CORRECT_POLLS_MAX = 20  # polls, for one second: below HOLE_GRACE_MS, so no process fills the number
CORRECT_YIELD_POLLS_MAX = 100  # polls in 5 s for a slow writer; the corrector holds no page number
CORRECT_RUN_MS = 240_000  # one run of a corrector ends after this time; a batch takes some 50 ms
AMEND_RUN_MS = 10_000  # a run in a request ends after this time; an HTTP API times out after 30 s
AMEND_TIMEOUT_S = 29  # Lambda kills a run in a request after this time; a retry continues the work
CORRECT_TIMEOUT_S = 300  # Lambda kills a run after this time
LOOKUP_KEYS_MAX = 1000  # keys per request; even the longest fit REQUEST_BYTES_MAX
LOOKUP_KEYS = 25  # keys read at once; a reply with the longest lines, escaped, is below 6 MB
LIVE_LOOKS_MAX = 5  # comparisons of an object that changes each time, before it is given up

# --- restricted producers --------------------------------------------------------------------
BOUND_POLL_MS = 50  # poll interval while an earlier page is not written, see CORRECT_POLL_MS
BOUND_POLLS_MAX = 20  # polls until the request fails, one second in all, see CORRECT_POLLS_MAX

# --- verifying ------------------------------------------------------------------------------
VERIFY_LOOK_MS = 1_000  # maximum age of a checkpoint; changes since it look like differences
REPAIR_BATCH = 1_000  # rows repaired between two reports of progress, in about a second

# --- syncs in the cloud ----------------------------------------------------------------------
SYNC_APPLIERS_MAX = 2  # parts of a plan applied at once: one run appends while the other reads rows
SYNC_EXPORT_BYTES = 10 * 1024**3  # a larger state is exported; a scan of this size costs $0.33
SYNC_APPROVAL_S = 3 * 24 * 3600  # time to approve a plan: a weekend; the plan itself expires later
SYNC_JOB_MINUTES = 12 * 60  # time limit of a Spark job; 100 million objects took 5 min on two cores
SYNC_CAUSE_CHARS = 1000  # length of a reported error: its message, without a long stack trace
DUMP_ADDRESS_CHARS_MAX = 1100  # a key has at most 1,024 bytes, a bucket's name 63

# --- status ----------------------------------------------------------------------------------
COUNT_SOON_MS = 1_000  # time between two writes of counts if a client has connected or disconnected
COUNT_EVERY_MS = 20_000  # time between two writes if the clients stay the same; 2 write units each
PRESENCE_MS = 45_000  # lifetime of a client count; two writes of it may fail
SWEPT_PRESENCE_MS = 130_000  # lifetime of the sweep's counts, one each minute; one sweep may fail
LAG_MS_MAX = 120_000  # a follower with this lag was woken by two sweeps, and is down or too slow
STATUS_READS_MAX = 4  # reads of 1 MB to find the frontier if the followers have stopped before it
STATUS_AGE_MS = 1_000  # a status is cached for this time, because any client can request it

# --- retention -------------------------------------------------------------------------------
RETENTION_MS_MIN = 3600 * 1000  # shortest retention; no write takes as long, as functions time out
TOMBSTONE_MS_MIN = RETENTION_MS_MIN + TOMBSTONE_SLACK_MS  # a tombstone's shortest lifetime
TTL_SLACK_MS = 24 * 3600 * 1000  # the sweep may be down this long before a page expires unprocessed
RENEW_WITHIN_MS = 12 * 3600 * 1000  # a page is renewed this long before it expires; sweeps may fail
RENEW_EVERY_MS = 3 * 3600 * 1000  # time between rounds; a page is checked four times before expiry
RENEW_PAGES_MAX = 20_000  # pages renewed per sweep (each minute), in seven seconds with 16 threads
CLAIM_MS = 24 * 3600 * 1000  # lifetime of a claim: a producer can repeat a request for a day

# --- what a feed's owner sets ----------------------------------------------------------------
PROFILE_AGE_MS = 4_000  # a profile is cached for this time; changes take effect within 5 s
SHARED_S = 1  # lifetime of a response in a shared cache; PROFILE_AGE_MS and this add up to 5 s
OBJECT_URL_CHARS_MAX = 1024  # far longer than any link in use; it is sent with every event
PASSWORDS_MAX = 2  # passwords per role: the old and the new one, while clients change theirs
PASSWORD_BYTES_MIN = 8  # shorter passwords are guessed easily, even at 15 ms of CPU per guess
PASSWORD_BYTES_MAX = 256  # a password and a user name, in base64, are far below limits for headers
VERIFIED_MAX = 40_000  # cached passwords: two for each of two roles of FEEDS_KNOWN_MAX feeds, 8 MB

# --- guesses of passwords --------------------------------------------------------------------
MISSES_MS = 10_000  # window in which wrong guesses are counted; after it, a user may retry
MISSES_MAX = 50  # wrong guesses per feed or host in a window: 2.5 s of hashing, 100 reads of keys
USER_MISSES_MAX = 10  # wrong guesses: 290 ms of bcrypt each, as long as MISSES_MAX with scrypt

# --- keys ------------------------------------------------------------------------------------
KEY_AGE_MS = 4_000  # a key is cached for this time; a revocation takes effect within 5 s
KEYS_KNOWN_MAX = 4_096  # keys cached per process, some 2 MB; an evicted key is read again
KEY_PREFIXES_MAX = 20  # prefixes of a key of the host, of 63 characters each
PREFIX_KEYS_MAX = 500  # keys below the prefixes of an administrator, half of ENDED_MAX
KEY_BOUND_CHARS_MAX = 256 * 1024  # filter of a key, as escaped JSON; a DynamoDB item holds 400 KB
KEY_RATE_MAX = 10_000  # highest rate of a key in requests a second, more than a feed can handle
KEY_WINDOW_MS = 10_000  # window of a rate, ten times the interval at which processes write counts
KEY_READ_SIZE = 1024 * 1024  # reading this amount (characters or bytes) counts as one request
KEY_BODY_BYTES = 64 * 1024  # a body of this size, the largest operation, counts as a request
KEY_COUNT_MS = 120_000  # lifetime of a window's count: clocks differ by less than a minute
KEY_STREAMS = 40  # a key's open streams by default: a tenth of `streams_max` of the stage `prod`
KEY_STREAMS_MAX = 1_000  # highest limit that a key can have: the concurrency of an AWS account
STREAM_HOLD_MS = 15 * 60_000  # lifetime of the entry for a key's open stream; functions end earlier
STREAM_HELD_RETRY_S = 30  # delay before a client retries to open a stream beyond the limit
KEY_LABEL_CHARS_MAX = 200  # length of a key's label and of its creator; they fit one line of a list
KEY_KEPT_MS = 30 * 24 * 3600 * 1000  # a key that ended is listed for a month, then it is deleted
ENDED_MAX = 1_000  # ended keys that a profile lists to disconnect clients: 25 KB, 7 read units

# --- changes ---------------------------------------------------------------------------------
CHANGE_SLOT_BITS = 10  # a page has at most 1,024 slots; 43 of 53 bits are left for page numbers
CHANGES_LIMIT = 100  # changes per reply if the request names no limit; the default of changeagent
CHANGES_LIMIT_MAX = 2**32 - 1  # largest number of changeagent's protocol; replies have a size limit
CHANGES_BYTES_MAX = 4 * 1024 * 1024  # size of a reply: Lambda buffers 6 MB; JSON must fit memory
LIST_TIMEOUT_S = 30  # Lambda kills a list request after this time, at which an HTTP API times out
CHANGES_BLOCK_S_MAX = 25  # a request waits this long for changes; an HTTP API times out after 30 s
CHANGES_HOLE_S = 3  # wait at a hole that hides acknowledged changes; a hole is closed by then
CHANGES_SCAN_MS = 15_000  # one request searches for a rare tag this long; the next one continues
CHANGES_FIRST_PAGES = 4  # pages in the first read; each next read is four times as large
CHANGES_FIRST_SUMMARIES = 16  # summaries in the first read; each next read is four times as large
HEAD_AGE_MS = 1_000  # a reply that does not reach the head shows a head cached for up to this time
HEAD_PAGES_MAX = 64  # pages read in search of the head, after the followers' checkpoints

# --- index of tags ---------------------------------------------------------------------------
SUMMARY_PAGES = 64  # pages in a summary, which costs one write unit if each page has one change
SUMMARY_TAGS = 1000  # a summary with this many tags (1.5 KB) is complete, even with fewer pages
SUMMARY_BITS = 12  # bits per tag; a summary reports a tag that it does not have in 0.3 % of cases
INDEX_EVERY = 15  # minutes until a partial summary is written; until then, the log is read
INDEX_RUN_MS = 40_000  # one run ends after this time; the next one starts within a minute
INDEX_TIMEOUT_S = 55  # Lambda kills a run after this time
FORWARD_RUN_MS = 40_000  # one run of the outbox ends after this time; Lambda kills it after 55 s

# --- listeners -------------------------------------------------------------------------------
RESOURCES_BYTES_MAX = 256 * 1024  # resources of a feed; a DynamoDB item with a profile holds 400 KB
RESOURCES_MAX = 32  # resources per feed; each is in every list of resources and in the profile
MAX_AGE_S_MIN = 60  # shortest `maxAge` of a feed: the interval of the sweep, which trims the log
VERSION_MAX = 999_999_999  # largest number accepted as a version; each from 2 on means version 2
INSTANCE_BYTES_MAX = 512  # instance and resource must fit in DynamoDB's sort key of 1,024 B
SERVICE_BYTES_MAX = 1024  # a listener's `service`, a text for people, stored with each resource
REGISTERING_MS = 75_000  # time for the reply to a registration; its function ends before that
OBJECTS_MAX = 1000  # objects in a reply of a bootstrap: some hundred kilobytes
OBJECTS_BYTES_MAX = 2 * 1024 * 1024  # size of a reply of a bootstrap; a Lambda response holds 6 MB
CAPTURE_BYTES = 370_000  # text of a captured batch, which fits a page even without compression
OBJECTS_READS_MAX = 64  # reads for a reply of a bootstrap: all buckets of a small state

# --- alarms of pipelines ----------------------------------------------------------------------
WAITING_ALARM_S = 300  # a failover and a restart end earlier; a longer wait needs an operator
RETAINED_ALARM_BYTES = 1 << 30  # the log of hours on most servers, and early enough for small disks

# --- named consumers -------------------------------------------------------------------------
CONSUMERS_MAX = 100  # named consumers per feed; one query a minute lists them
CONSUMER_LEASE_MS = 30_000  # a worker renews its lease at least three times in this period
WORKER_CHARS_MAX = 128  # length of a worker's name: a host, a process id and random digits
CONSUMER_SPANS_MAX = 1000  # ranges acknowledged after the position: 30 KB, up to thirty write units
ACK_IDS_MAX = 1000  # acknowledged ids per request, as many as one page may hold
WRITTEN_MAX = 1 << 53  # the number of a worker's store; a double has all integers up to this one
ACK_PAGES_MAX = 64  # pages to which the ids of a request belong; each is read, to check the ids
ADVANCE_PAGES_FIRST = 2  # pages in the first read, as the next operation is usually on one of them
ADVANCE_PAGES = 16  # pages read at once in search of the first unacknowledged operation
ADVANCE_READS_MAX = 4  # times ADVANCE_PAGES are read per request; the next one continues the search
UPCOMING_READS_MAX = 256  # reads while an operator waits for a message of a rare type, 2 seconds
PARKED_MAX = 90  # parked messages per consumer; with its other items they fit a transaction of 100
ERROR_CHARS_MAX = 1000  # enough for a worker's error message, without a long stack trace
ERASED_PAGE_BYTES_MAX = 395_000  # as PAGE_BYTES_MAX, and room for the marks of erased entries
ERASURE_PAGES = 100  # pages that one step of an erasure reads; the job rests between two pages
ERASURE_TOGETHER = 8  # pages that one transaction replaces, in 1 ms; the largest pages take 15 ms
ERASURE_BUCKETS = 8  # buckets of the state searched in one step; divides BUCKETS
ERASE_RUN_MS = 40_000  # one run ends after this time; the sweep wakes the next one within a minute
ERASE_TIMEOUT_S = 55  # Lambda kills a run after this time: ERASE_RUN_MS and one step
ERASE_POLLS = 5  # looks of one run for the followers that it has woken
ERASE_POLL_MS = 1_000  # the pause between these looks
ERASE_SETTLE_S = 900  # the longest run of a function: no run still has pages from before a rewrite
REMOVE_RUN_MS = 40_000  # one run ends after this time; the sweep wakes the next one within a minute
REMOVE_TIMEOUT_S = 55  # Lambda kills a run after this time: REMOVE_RUN_MS and one step
ERASURE_GRACE_MS = 24 * 3600 * 1000  # time to resume after an outage, before an entry is erased
RECOVERY_DAYS = 35  # days back to which a stage's tables can be restored; DynamoDB's maximum
SYNC_FILES_DAYS = 30  # S3 then deletes the files of syncs; until then, operators can inspect them
SYNC_FILES_GONE_MS = (SYNC_FILES_DAYS + 2) * 24 * 3600 * 1000  # with the next midnight and a delay
FILTERS_NAMED = 20  # consumers and keys that the note of a report names, some 600 characters
ERASURES_LISTED = 100  # records of erasures that are returned at once, some 50 KB
WHY_CHARS_MAX = 500  # length of an operator's reason, a few sentences
NOTES_MAX = 100  # records of operators' actions that are returned at once, the latest first
NOTE_MS = 365 * 24 * 3600 * 1000  # lifetime of the record of an operator's action, for an audit
LOG_ENTRIES_MAX = 1000  # operations of the log that are returned at once to an operator
LOG_BYTES_MAX = 2 * 1024 * 1024  # size of operations returned at once; a Lambda response holds 6 MB
SAVE_ATTEMPTS_MAX = 8  # attempts to change a record; a relay saves its own 20 times a second

# --- chained feeds --------------------------------------------------------------------------
SHARE_PARTS_MAX = 4096  # parts into which a feed may be divided
BATCH_BYTES = 1024 * 1024  # size of a reply of whole pages, unless the request names another
BATCH_BYTES_MAX = 4 * 1024 * 1024  # largest size of a reply; a Lambda response holds at most 6 MB
BATCH_BYTES_MIN = 4 * PAGE_BYTES_MAX  # a relay requests this or more; a page fits, deflated or not
STATE_KEY_BYTES_MAX = 1024  # DynamoDB's limit for a key, such as the key of a row
BATCH_PAGES_MAX = 90  # pages per write; with relay document and head, they fit a transaction of 100
BATCH_BLOCK_S_MAX = 20  # a request for new pages waits at most this long; gateways time out later
RELAY_POLL_S = 2  # wait of a request in the role `elected`; the leader lease is renewed in between
RELAY_LEASE_MS = 45_000  # longer than any request: BATCH_BLOCK_S_MAX and a timeout, see LEASE_MS
RELAY_RUN_MS = 240_000  # one run of a relay ends after this time and wakes the next
RELAY_TIMEOUT_S = 300  # Lambda kills a run after this time: RELAY_RUN_MS and the last request
RELAY_BACKOFF_MS = 500  # pause before the second attempt; it doubles with each attempt
RELAY_BACKOFF_MS_MAX = 60_000  # with this maximum, a recovered upstream is found within a minute
RELAY_SAVE_MS = 10_000  # without new pages, a relay document is stored at this interval
RELAY_COMPARE_MS = 600_000  # time between two comparisons with the upstream's sums, a request each
RELAY_COMPARE_WAITS = 10  # waits of a second each, until both states are at the same page
RELAY_COUNT_ROWS_MAX = 50_000  # rows of a bucket, read in seconds; 64 such buckets have 3,200,000
RELAY_WRITE_BYTES = 3_500_000  # size of the pages in a transaction, which holds 4 MB in all
LEADER_LEASE_MS = 4_000  # a leader that does not renew within this time has lost the lease
LEADER_LEASE_RENEW_MS = 1_000  # interval of renewals, of which three may be lost
LEADER_LEASE_FAILURES = 3  # consecutive failures, some 4 s, after which a leader gives up the lease
LEADER_LEASE_REST_MS = 30_000  # pause of a leader that gave up, so that another member can lead
MEMBER_MS = 30_000  # a cluster member that was silent for this time is shown as gone
MEMBER_KEPT_MS = 24 * 3600 * 1000  # a member that was silent for this time is not shown any more
LEADERS_MAX = 8  # leaders per cluster; each of them reads the master
VIA_MAX = 32  # feeds in a chain of copies; a longer chain is a mistake

# --- outgoing webhooks -----------------------------------------------------------------------
WEBHOOKS_MAX = 50  # webhooks per feed: each is a named consumer, and all are one document of 100 KB
WEBHOOK_URL_CHARS_MAX = 1024  # proxies truncate longer URLs
WEBHOOK_S = 15  # response timeout, as in Standard Webhooks; half of a lease's duration
WEBHOOK_AT_ONCE = 8  # concurrent messages to an endpoint: 80 a second at 100 ms each
WEBHOOK_SECRET_BYTES = 32  # size of a generated secret; Standard Webhooks allows 24 to 64
WEBHOOK_ROTATION_MS = 24 * 3600 * 1000  # time in which the replaced secret also signs
WEBHOOK_ATTEMPTS_MAX = 10  # attempts per message, in 75 hours with the delays of Standard Webhooks
WEBHOOK_ATTEMPTS_KEPT = 20  # last attempts of a webhook: two messages with all their attempts
WEBHOOK_LOGS_MAX = 1_000  # webhooks with attempts in memory, in some 10 MB
WEBHOOK_TURN_MS = 10_000  # turn of an endpoint, so that others wait less; begun calls are completed

# --- durable streams -------------------------------------------------------------------------
STREAM_PRODUCERS_MAX = 100  # producers of a stream; each append by a producer writes all, 8 KB
STREAM_PAGES_MAX = 1_000  # pages per response, each a read of 30 us; the reader then continues
STREAM_WAIT_S = 20  # duration of a long poll; gateways and proxies time out after 30 s
STREAM_LIVE_S = 60  # duration of an SSE response, as in the protocol; then its reader resumes
STREAM_SAID_S = 20  # an idle stream repeats its offset this often; proxies time out after 30 s
STREAM_CURSOR_S = 20  # responses for an offset keep their cursor for this time, as in the protocol
STREAM_CURSOR_DIGITS_MAX = 15  # digits of a cursor that a client returns; real cursors have eight

# --- connections of a server -----------------------------------------------------------------
HEAD_BYTES_MAX = 64 * 1024  # size of a head (request line and fields); browsers send a few KB
HEAD_FIELDS_MAX = 256  # fields of a head, or of trailers; a browser and three proxies send fifty
QUERY_FIELDS_MAX = 256  # fields of a query; requests have ten; each takes 2 us of the event loop
LIST_MEMBERS_MAX = 64  # members of `Accept` that count, commas of a handshake; browsers send ten
HEAD_S = 10.0  # time for a head or a TLS handshake, which takes seconds on the worst network
KEEP_ALIVE_S = 75.0  # an idle connection is closed after this; proxies reuse connections for 60 s
STALL_S = 20.0  # a client that does not read for this time is disconnected, and can resume
CLOSE_S = 5.0  # time for a client to read the end of a response, before a reset
SUBSCRIBE_S = 60.0  # time for a WebSocket to subscribe: enough to type the message by hand
LINGER_S = 10.0  # time to read a rejected body, because a reset would destroy the response
PIPELINED_MAX = 32  # requests waiting on one connection for an earlier response; browsers send one
FILES_MAX = 65_536  # file descriptors of a process, with 64 KB of buffers each: 4 GB
FILES_RESERVED = 512  # file descriptors for outgoing connections and for threads that read
BODY_S = 60.0  # time for a body; the largest body needs 170 KB a second
BODY_IDLE_S = 20.0  # time between two bytes of a body, the same as STALL_S
BODIES_BYTES_MAX = 128 * 1024 * 1024  # bodies in memory at once: 12 of the largest, or 100 posts

# --- restoring ------------------------------------------------------------------------------
NUMBERS_PER_S_MAX = 10_000  # page numbers that a server assigns in a second; DynamoDB assigns 1,000
PAGE_NUMBER_MAX = 2**40 - 1  # largest page number with ten hex digits, as in an event id
JUMPS_MIN = 64  # a jump of page numbers skips at most a 64th of the remaining ones, at first 2^34
LOST_RANGES_MAX = 100  # ranges in a profile, which is read with each cursor; older ones are merged

# --- telemetry ----------------------------------------------------------------------------------
SPANS_QUEUED_MAX = 2_048  # answers that wait to become spans, some 2 MB; the SDK's queue is as long

# --- creating and deleting feeds ----------------------------------------------------------------
FEED_AGE_MS = 3_000  # a record is cached for this time; with EXISTS_S, readers end within 5 s
FEED_STALE_MS = 5_000  # FEED_AGE_MS, a read of the record, and clocks of functions that differ
EXISTS_S = 2.0  # a request that waits checks this often if its feed was deleted; costs a thread
FEEDS_KNOWN_MAX = 10_000  # records cached per process, some 5 MB; also of names without a feed
CLIENTS_LISTED = 200  # connected clients in an answer of some 60 KB; a stage reads them at once
USER_AGENT_CHARS = 200  # longer names of programs are cut; that of a browser has some 120
HISTORY_SAMPLES = 60  # samples of a feed, one a minute: the hour before an operator looks
HISTORY_LAGS = 20  # lags in a sample, the largest; all samples of all feeds need at most 20 MB
FEEDS_NAMED = 100  # feeds in a status and in the labels of /metrics, which must stay small and fast
FEEDS_LISTED = 100  # feeds in one response, some 50 KB with their reports
FEED_USERS_SHOWN = 10  # users of a feed that an error names; the rest is counted
FEED_BY_CHARS_MAX = 256  # length of the principal in a record; a digest has 64
CREATE_MARGIN_MS = 60_000  # a writer that is so late uses no number of the next feed of a name
REMOVALS_MAX = 100  # unfinished removals of one name; a record is one item of at most 400 KB
REMOVALS_KEPT = 3  # finished removals that a record reports
REMOVE_SETTLE_MS = 10_000  # pause before the second pass: FEED_AGE_MS, and the longest request

# --- documents of operators ------------------------------------------------------------------
DOCUMENT_AGE_MS = 4_000  # a document is cached for this time; changes take effect within 5 s
DOCUMENT_BYTES_MAX = 256 * 1024  # size of a user file: 3,000 users; a DynamoDB item holds 400 KB
USERS_MAX = 2_000  # users of a feed, of some 80 bytes each
CONFIGURATION_BYTES_MAX = 64 * 1024  # far more than HOOKS_MAX hooks with long headers need
HOOKS_MAX = 10  # webhooks of changeagent, called at once for each change
HOOK_S = 10  # time limit of all responses together: an HTTP API times out after 30 s
BCRYPT_COST_MAX = 14  # with a higher cost, one check takes a second of a core

# --- tokens of an issuer -------------------------------------------------------------------------
TOKEN_LEEWAY_S = 60  # tolerated difference of clocks; with NTP, it is less than a second
TOKEN_GRANTS_MAX = 100  # grants per token: a header holds a token of 10 KB, a grant has 80 bytes
