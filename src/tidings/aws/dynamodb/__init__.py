"""The stores on DynamoDB. `table` sends their requests.

`records` stores the records of the core. Each other module encodes the items of its stores.

Items are stored for years, so the names and layouts must not change. DynamoDB bills a write for
each KB of names and values, so attributes are few and short.

The table shows the partition key and the sort key of each item. An item that is the only one in its
partition has the sort key `-`. NUL is the character with the code 0. `<feed>` is the key of a feed;
feeds and removals are stored under names, and so are messages.

Some kinds of items have older names than the code: `tally` (counter), `left` (removed parents),
`watch` (subscription), `seat` (leader lease), `sheet` (operator's document).

| item         | table       | key                                          | lives                |
|--------------|-------------|----------------------------------------------|----------------------|
| page         | log         | feed, page                                   | the feed's retention |
| head         | control     | `head#<feed>`, `-`                           | forever              |
| floor        | control     | `floor#<feed>`, `-`                          | forever              |
| follower     | control     | `follower#<feed>`, name                      | forever              |
| claim        | control     | `claim#<feed>`, Idempotency-Key              | 24 hours             |
| consumer     | control     | `consumer#<feed>`, name                      | forever              |
| parked       | control     | `parked#<feed>#<name>`, id of the message    | until it is handled  |
| note         | control     | `note#<feed>#<name>`, its time and a number  | `limits.NOTE_MS`     |
| key          | control     | `key#<feed>`, id                             | until it has ended   |
| sheet        | control     | `sheet#<feed>`, name                         | forever              |
| profile      | control     | `profile#<feed>`, `-`                        | forever              |
| erasure      | control     | `erasure#<feed>`, page of its entry, in hex  | until it is done     |
| erased       | control     | `erased#<feed>`, page of its entry, in hex   | forever              |
| feed         | control     | `feeds`, name                                | forever              |
| removing     | control     | `removing`, name                             | until it is removed  |
| due          | control     | `due`, time and feed                         | until the next visit |
| relay        | control     | `relay`, feed                                | forever              |
| upstream     | control     | `upstream#<feed>`, `-`                       | forever              |
| served       | control     | `served`, `-`; of the stage `local`          | forever              |
| counter      | control     | `tally#<feed>`, name or `at#<place>`         | forever, place: TTL  |
| row          | state       | `<feed>#<bucket>`, object key                | until TTL if deleted |
| removed      | state       | `<feed>#left`, page number                   | as its page          |
| connection   | connections | `connection#<id>`, `-`                       | its connection       |
| roster       | connections | `roster`, `-`                                | forever              |
| change       | connections | `inbox#<lane>`, connection id                | until applied        |
| subscription | connections | `watch#<lane>`, filter key NUL connection id | its subscription     |
| message      | outbox      | name, id; `refused#<name>` once refused      | until in the log     |
| registered   | connections | `registered#<feed>`, instance NUL resource   | its connection       |
| lease        | seats       | `seat#<cluster>`, number                     | forever              |
| member       | seats       | `member#<cluster>`, address                  | a day after its last |

Every attribute `expires` is in whole seconds, as DynamoDB's TTL requires. It is rounded up, so that
an item never expires too early.
"""
