"""`python -m cutlog.stack jars` brings Kafka's jars, `lock` writes their lock anew."""

import sys

from cutlog.stack.kafka_jars import VERSION, default_cache, ensure_jars, write_lock


def main(arguments: list[str]) -> int:
    match arguments:
        case ["jars"]:
            jars = ensure_jars(default_cache())
            print(f"Kafka {VERSION}: {len(list(jars.glob('*.jar')))} jars")
        case ["lock"]:
            write_lock(default_cache())
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
