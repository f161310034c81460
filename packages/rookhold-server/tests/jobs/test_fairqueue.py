"""Fair dispatch decided step by step, without workers or time."""

from collections import Counter, deque

from hypothesis import given
from hypothesis import strategies as st

from rookhold_server.jobs.admission import QueueAdmission
from rookhold_server.jobs.fairqueue import FairQueue, Pending


class Bench:
    def __init__(self, **settings):
        self.admission = QueueAdmission(capacity=10_000, tenant_capacity=10_000)
        self.queue = FairQueue(**{"concurrency": 100, "budget_mb": 100_000, **settings})
        self.count = Counter()

    def add(self, tenant, mb=16, times=1):
        for _ in range(times):
            self.count[tenant] += 1
            self.queue.add(
                Pending(
                    job_id=f"{tenant}{self.count[tenant]}",
                    tenant=tenant,
                    admitted_mem_mb=mb,
                    permit_mb=mb,
                    lease=self.admission.reserve(tenant),
                )
            )

    def take(self, most=1000):
        grants = []
        while len(grants) < most and (grant := self.queue.take()) is not None:
            grants.append(grant)
        return grants


def ids(grants):
    return [grant.pending.job_id for grant in grants]


def test_tenants_take_turns_and_each_is_strictly_first_in_first_out():
    bench = Bench()
    bench.add("a", times=3)
    bench.add("b", times=2)
    bench.add("c", times=1)
    assert ids(bench.take()) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_a_turn_gives_each_tenant_its_weight():
    bench = Bench(weights={"a": 3})
    bench.add("a", times=7)
    bench.add("b", times=3)
    assert ids(bench.take()) == ["a1", "a2", "a3", "b1", "a4", "a5", "a6", "b2", "a7", "b3"]


def test_a_turn_goes_on_where_it_stopped_when_a_worker_comes_free():
    bench = Bench(weights={"a": 3})
    bench.add("a", times=4)
    bench.add("b", times=1)
    taken = [ids(bench.take(most=1))[0] for _ in range(5)]
    assert taken == ["a1", "a2", "a3", "b1", "a4"]


def test_a_job_that_waits_for_memory_is_not_overtaken_by_a_smaller_one():
    bench = Bench(budget_mb=1536)
    bench.add("b", mb=1024)
    (running,) = bench.take()
    bench.add("a", mb=1024)
    bench.add("b", mb=512)
    bench.add("a", mb=16)
    assert bench.take() == []
    bench.queue.give_back(running)
    assert ids(bench.take()) == ["a1", "b2"]
    assert bench.queue.held_mb == 1536


def test_a_job_larger_than_the_budget_takes_all_of_it_alone():
    bench = Bench(budget_mb=512)
    bench.add("a", mb=4096)
    bench.add("b", mb=16)
    (large,) = bench.take()
    assert bench.queue.held_mb == 512
    bench.queue.give_back(large)
    assert ids(bench.take()) == ["b1"]


def test_a_tenant_at_its_limit_does_not_delay_another():
    bench = Bench(concurrency=1)
    bench.add("a", times=2)
    bench.add("b")
    grants = bench.take()
    assert ids(grants) == ["a1", "b1"]
    bench.queue.give_back(grants[0])
    assert ids(bench.take()) == ["a2"]


def test_a_deep_backlog_does_not_keep_a_small_tenant_waiting():
    bench = Bench()
    bench.add("noisy", times=300)
    running = deque(bench.take(most=2))
    bench.add("quiet", times=3)
    served = []
    while len([job for job in served if job.startswith("quiet")]) < 3:
        bench.queue.give_back(running.popleft())
        running.extend(bench.take(most=1))
        served.append(running[-1].pending.job_id)
    assert len(served) <= 6


def test_equal_load_is_served_equally():
    bench = Bench()
    for tenant in "abcde":
        bench.add(tenant, times=40)
    served = Counter(grant.pending.tenant for grant in bench.take(most=100))
    assert max(served.values()) - min(served.values()) <= 1


def test_a_share_is_by_weight_among_those_who_wait():
    bench = Bench(weights={"a": 3})
    assert bench.queue.share("a") == bench.queue.share("b") == 1
    bench.add("a")
    bench.add("b")
    assert (bench.queue.share("a"), bench.queue.share("b")) == (0.75, 0.25)
    bench.add("c")
    assert (bench.queue.share("a"), bench.queue.share("c")) == (0.6, 0.2)
    bench.take()
    assert bench.queue.share("b") == 1


def test_a_place_counts_only_the_tenants_own_jobs_that_still_wait():
    bench = Bench()
    bench.add("a", times=3)
    bench.add("b", times=9)
    assert [bench.queue.find("a", f"a{n}")[0] for n in (1, 2, 3)] == [1, 2, 3]
    bench.queue.find("a", "a2")[1].cancelled = True
    assert bench.queue.find("a", "a3")[0] == 2
    assert bench.queue.find("a", "b1") is None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abc"), st.sampled_from([16, 100, 400, 900])),
        st.tuples(st.just("take")),
        st.tuples(st.just("end"), st.integers(0, 10)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 3), st.sampled_from([300, 900, 1000]))
def test_held_slots_and_memory_are_exactly_those_of_granted_jobs(steps, concurrency, budget):
    bench = Bench(concurrency=concurrency, budget_mb=budget)
    held, order = [], {tenant: [] for tenant in "abc"}
    for step in steps:
        if step[0] == "add":
            bench.add(step[1], mb=step[2])
        elif step[0] == "take":
            if (grant := bench.queue.take()) is not None:
                held.append(grant)
                order[grant.pending.tenant].append(int(grant.pending.job_id[1:]))
        elif held:
            bench.queue.give_back(held.pop(step[1] % len(held)))
        assert bench.queue.held_mb == sum(grant.held_mb for grant in held) <= budget
        running = Counter(grant.pending.tenant for grant in held)
        for tenant in "abc":
            assert bench.queue.running(tenant) == running[tenant] <= concurrency
    for taken in order.values():
        assert taken == list(range(1, len(taken) + 1))


@given(STEPS)
def test_work_that_fits_is_never_left_while_everything_is_free(steps):
    bench = Bench(concurrency=1, budget_mb=1000)
    for step in steps:
        if step[0] == "add":
            bench.add(step[1], mb=step[2])
    total, served = sum(bench.count.values()), 0
    while served < total:
        grants = bench.take()
        assert grants
        served += len(grants)
        for grant in grants:
            bench.queue.give_back(grant)
