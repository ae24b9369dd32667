"""Which servers of the tests this machine has: each from a package, or a jar that Maven fetches."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from shutil import which

from tests.unit.pipelines import search_server, server
from tests.unit.pipelines.maven import Jars

KAFKA = Jars("kafka", "org.apache.kafka", "kafka_2.13", "4.1.1")
MONGODB = Jars("mongo-java-server", "de.bwaldvogel", "mongo-java-server", "1.47.0")


def redis_program() -> str | None:
    return which("valkey-server") or which("redis-server")


def mariadb_program() -> str | None:
    return which("mariadb-install-db") and which("mariadbd")


def rabbitmq_program() -> str | None:
    # Debian's wrapper on the PATH changes to a user of its own.
    found = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
    return which("epmd") and (str(found) if found.exists() else which("rabbitmq-server"))


def pgbouncer_program() -> str | None:
    return which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")


_MAVEN = "needs Java 17, and Maven to fetch"
# By marker: the server that tests with it need, and whether it is installed.
SERVERS: Mapping[str, tuple[str, Callable[[], object]]] = {
    "elasticsearch": (f"{_MAVEN} Elasticsearch", lambda: not search_server.missing_elasticsearch()),
    "kafka": (f"{_MAVEN} Kafka", lambda: not KAFKA.missing()),
    "mariadb": ("needs MariaDB: apt-get install mariadb-server", mariadb_program),
    "mongodb": (f"{_MAVEN} mongo-java-server", lambda: not MONGODB.missing()),
    "opensearch": (f"{_MAVEN} OpenSearch", lambda: not search_server.OPENSEARCH.missing()),
    "pgbouncer": ("needs PgBouncer: apt-get install pgbouncer", pgbouncer_program),
    "postgresql": ("needs PostgreSQL: apt-get install postgresql", server.binaries),
    "rabbitmq": ("needs RabbitMQ: apt-get install rabbitmq-server", rabbitmq_program),
    "redis": ("needs Redis or Valkey: apt-get install redis-server", redis_program),
}
