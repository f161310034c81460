"""What is counted as stored is what folding gives back."""

from hypothesis import given
from hypothesis import strategies as st

from rookhold_exec.executor import OutputRecord
from rookhold_server.evidence.retained import Retained
from rookhold_types import WireEvent

RECORDS = st.lists(
    st.builds(
        OutputRecord,
        st.sampled_from(["stdout", "stderr"]),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=8),
        st.booleans(),
        st.none() | st.binary(max_size=8),
    ),
    max_size=12,
)


@given(RECORDS)
def test_records_and_the_events_made_of_them_count_alike(records):
    streamed = Retained()
    for record in records:
        streamed.add_record(record)
    stored = Retained.from_history(
        WireEvent(seq=seq, ts_ms=0, kind=record.stream, data=record.data())
        for seq, record in enumerate(records, 1)
    )
    for stream in ("stdout", "stderr"):
        one, other = getattr(streamed, stream), getattr(stored, stream)
        assert (one.bytes, one.sha256) == (other.bytes, other.sha256)
    assert not stored.truncated
