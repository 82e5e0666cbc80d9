"""What a processor tells of its pools, and that telling it changes nothing."""

from prometheus_client import CollectorRegistry, generate_latest

from processors.metrics import PoolMetrics
from schema import replies as r
from tests.processors.play import Play


def test_depths_and_slots_are_told_for_every_pool_and_lane() -> None:
    play = Play()
    play.runner(slots=2)
    for number in range(5):
        play.submit(f"key-{number}")
    registry = CollectorRegistry()
    registry.register(PoolMetrics(play.flow.rules.pools))
    told = generate_latest(registry).decode()
    assert 'cutlog_pool_slots{pool="R"} 2.0' in told
    assert 'cutlog_pool_used_slots{pool="R"} 2.0' in told
    assert 'cutlog_pool_runners{pool="R"} 1.0' in told
    assert 'cutlog_pool_waiting_tasks{lane="p1",pool="R"} 3.0' in told
    assert 'cutlog_pool_lane_paused{lane="p1",pool="R"} 0.0' in told


def test_a_scrape_moves_nothing_in_the_order_of_service() -> None:
    """It comes in a thread of its own while the writer works; stale entries are the writer's."""
    play = Play(partitions=1)
    runner = play.runner()
    tasks = [play.submit(f"key-{number}") for number in range(4)]
    play.cancel(tasks[1])  # leaves a stale entry at the head of the line
    state = play.flow.rules.pools.states()[0]
    before = [len(yard.free) for yard in map(state.yard, state.pools)], len(state.timers)
    lanes = state.yard(runner.pool_id).waiting._arrivals  # pyright: ignore[reportPrivateUsage]
    waiting = {lane: len(ranked) for lane, ranked in lanes.items()}
    registry = CollectorRegistry()
    registry.register(PoolMetrics(play.flow.rules.pools))
    generate_latest(registry)
    assert before == ([len(yard.free) for yard in map(state.yard, state.pools)], len(state.timers))
    assert waiting == {lane: len(ranked) for lane, ranked in lanes.items()}
    runner.finish(runner.inbox(r.DispatchAttempt)[0])
    assert runner.inbox(r.DispatchAttempt)[-1].task_id == tasks[2]
