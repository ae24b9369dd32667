"""
The stores on DynamoDB. Each module encodes the items of its stores.

Names and layouts are stored for years and must not change. DynamoDB counts names as well as values
and bills a write per KB, so attributes are few and short. `transport` sends the
requests.

| item       | table       | key                                          | lives                  |
|------------|-------------|----------------------------------------------|------------------------|
| page       | log         | feed, page                                   | the feed's retention   |
| head       | control     | `head#<feed>`, `-`                           | for ever               |
| floor      | control     | `floor#<feed>`, `-`                          | for ever               |
| follower   | control     | `follower#<feed>`, name                      | for ever               |
| claim      | control     | `claim#<feed>`, Idempotency-Key              | 24 hours               |
| profile    | control     | `profile#<feed>`, `-`                        | for ever               |
| relay      | control     | `relay`, feed                                | for ever               |
| upstream   | control     | `upstream#<feed>`, `-`                       | for ever               |
| served     | control     | `served`, `-`; a twin's only                 | for ever               |
| tally      | control     | `tally#<feed>`, what or `at#<place>`         | for ever; a place: TTL |
| row        | state       | `<feed>#<bucket>`, object key                | for ever; deleted: TTL |
| departures | state       | `<feed>#left`, page number                   | as its page            |
| connection | connections | `connection#<id>`, `-`                       | its connection         |
| roster     | connections | `roster`, `-`                                | for ever               |
| change     | connections | `inbox#<lane>`, connection id                | until it is applied    |
| watch      | connections | `watch#<lane>`, filter key NUL connection id | its subscription       |
| letter     | outbox      | feed, id; `refused#<feed>` once refused      | until it is in the log |
| registered | connections | `registered#<feed>`, instance NUL resource   | its connection         |
| seat       | seats       | `seat#<cluster>`, number                     | for ever               |
| member     | seats       | `member#<cluster>`, address                  | while it sends        |

Every `expires` is in whole seconds, as DynamoDB's TTL requires, rounded up: an item may live too
long, never too short.
"""
