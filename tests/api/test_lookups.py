"""Look-ups: many requests, few queries, and a failure is told to everyone who asked."""

import asyncio

import pytest

from api.lookups import Lookups


async def test_what_is_asked_while_a_query_runs_shares_the_next() -> None:
    asked: list[list[int]] = []
    running = asyncio.Event()
    go = asyncio.Event()

    async def fetch(keys: list[int]) -> dict[int, str]:
        asked.append(keys)
        running.set()
        await go.wait()
        return {key: str(key) for key in keys if key % 2}

    lookups: Lookups[int, str] = Lookups(fetch, pause_seconds=0)
    first = asyncio.create_task(lookups.get(1))
    await running.wait()
    others = [asyncio.create_task(lookups.get(key)) for key in (2, 3, 3, 4)]
    await asyncio.sleep(0)
    go.set()
    assert await first == "1"
    assert await asyncio.gather(*others) == [None, "3", "3", None]
    assert asked == [[1], [2, 3, 4]]


async def test_a_failure_is_told_to_all_who_asked_and_the_next_is_asked_anew() -> None:
    answers: list[Exception | dict[int, str]] = [OSError("away"), {1: "one"}]

    async def fetch(keys: list[int]) -> dict[int, str]:
        await asyncio.sleep(0)
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return {key: found[key] for key in keys}

    lookups: Lookups[int, str] = Lookups(fetch)
    results = await asyncio.gather(lookups.get(1), lookups.get(1), return_exceptions=True)
    assert all(isinstance(result, OSError) for result in results)
    assert await lookups.get(1) == "one"


async def test_who_gives_up_does_not_take_it_from_the_others() -> None:
    go = asyncio.Event()

    async def fetch(keys: list[int]) -> dict[int, str]:
        await go.wait()
        return dict.fromkeys(keys, "found")

    lookups: Lookups[int, str] = Lookups(fetch)
    impatient = asyncio.create_task(lookups.get(1))
    patient = asyncio.create_task(lookups.get(1))
    await asyncio.sleep(0)
    impatient.cancel()
    go.set()
    assert await patient == "found"
    with pytest.raises(asyncio.CancelledError):
        await impatient
