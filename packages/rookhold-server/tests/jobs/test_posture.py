"""Runtime packs: what a root file system offers is what is listed, accepted, run and recorded."""

import msgspec
import pytest

from rookhold_server.jobs.posture import capabilities, offered_packs
from rookhold_server.refusal import Refusal
from rookhold_types.isolation import IsolationClass
from rookhold_types.runtimes import PACKS

pytestmark = pytest.mark.anyio

CLASS = IsolationClass.LINUX_SHARED_KERNEL
ALL = tuple(PACKS.values())


def posture(kit, **changes):
    kit.executor.posture = msgspec.structs.replace(kit.executor.posture, **changes)
    return kit.executor.posture


def listed(kit):
    return capabilities(kit.settings, kit.executor.posture, None).runtime_packs


def test_the_packs_of_the_root_file_system_are_listed(kit):
    posture(kit, isolation_class=CLASS, runtime_packs=ALL)
    assert listed(kit) == ALL


def test_a_root_file_system_without_packs_lists_none(kit):
    posture(kit, isolation_class=CLASS)
    assert listed(kit) == ()


def test_a_language_that_does_not_work_has_no_pack(kit):
    posture(kit, isolation_class=CLASS, runtime_packs=ALL, languages=("node", "bash"))
    assert listed(kit) == (PACKS["node"], PACKS["bash"])


def test_without_a_class_there_are_no_packs_whoever_claims_some(kit):
    assert offered_packs(posture(kit, runtime_packs=ALL)) == ()


def test_names_that_nobody_knows_are_not_listed(kit):
    posture(kit, isolation_class=CLASS, runtime_packs=("python:of-my-own", PACKS["bash"]))
    assert listed(kit) == (PACKS["bash"],)


@pytest.mark.parametrize(
    ("offered", "asked", "code"),
    [
        (ALL, "node:bookworm-20260826-base", "runtime_pack_unavailable"),
        (ALL, "python:latest", "runtime_pack_unavailable"),
        ((), "python:bookworm-20260826-stdlib", "runtime_pack_unavailable"),
    ],
    ids=["of another language", "unknown", "not in this root file system"],
)
async def test_a_pack_that_is_not_offered_is_refused(kit, submit, offered, asked, code):
    posture(kit, isolation_class=CLASS, runtime_packs=offered)
    async with kit.running() as engine:
        with pytest.raises(Refusal) as caught:
            await submit(engine, runtime=asked)
    assert caught.value.code == code


async def test_the_pack_that_was_asked_for_reaches_the_executor_and_the_receipt(
    kit, submit, finished
):
    posture(kit, isolation_class=CLASS, runtime_packs=ALL)
    async with kit.running() as engine:
        submitted = await submit(engine, runtime=PACKS["python"])
        run = await kit.executor.next_run()
        assert run.plan.runtime == PACKS["python"]
        run.end(
            provenance=msgspec.structs.replace(
                kit.executor.provenance, isolation_class=CLASS, runtime_pack=PACKS["python"]
            )
        )
        detail = await finished(engine, submitted.job_id)
    assert detail.status == "succeeded"
    assert detail.receipt["runtime_pack"] == PACKS["python"]


async def test_a_job_that_asked_for_none_leaves_the_choice_to_the_executor(kit, submit):
    posture(kit, isolation_class=CLASS, runtime_packs=ALL)
    async with kit.running() as engine:
        await submit(engine)
        run = await kit.executor.next_run()
        assert run.plan.runtime is None
        run.end()
