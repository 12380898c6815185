"""What a session prints of calls that it traced: one verdict, one sentence on steps."""

import io
from dataclasses import replace
from typing import Any

import pytest

import pipelines
import stepscope
from stepscope.analyse.results import Trust
from stepscope.session import calls_views


@pytest.fixture(scope="module")
def sd() -> Any:
    return pipelines.stable_diffusion()


def reported(session: stepscope.ProfileSession) -> str:
    text = io.StringIO()
    session.report(text)
    return text.getvalue()


def heads(text: str, *words: str) -> list[str]:
    """The lines that begin with one of these words."""
    return [line.split()[0].rstrip(":") for line in text.splitlines() if line.startswith(words)]


@pytest.fixture(scope="module")
def traced(sd: Any) -> Any:
    with stepscope.profile(sd, steps=2) as session:
        pipelines.sd(sd, 4)
    return session


def test_a_traced_call_has_one_verdict_and_one_sentence_on_steps(traced: Any) -> None:
    """The whole run's; what the trace shows of its few steps is a table under its own head."""
    text = reported(traced)
    assert len(heads(text, "TRUSTED", "UNTRUSTED")) == 1
    assert heads(text, "Steps ", "Total ", "Dominant ", "Model ") == ["Model", "Total", "Steps", "Steps"]
    assert "\nSteps in the trace ──" in text
    assert text.index("The trace of call 0:") < text.index("GPU  ") < text.index("Stages in the trace")


def test_what_the_trace_contradicts_is_in_the_one_verdict(
    traced: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call whose numbers agree is untrusted where its trace says otherwise, with the trace's reason."""
    known = calls_views.report_calls

    def contradicted(dumps: Any, traces: Any) -> Any:
        report = known(dumps, traces)
        reasons = (f"{dumps[0].request_id}: one", f"{traces[0].name}: kernels were lost")
        return replace(report, trust=Trust(ok=False, reasons=reasons))

    monkeypatch.setattr(calls_views, "report_calls", contradicted)
    text = reported(traced)
    assert text.startswith("UNTRUSTED: one\n  also: the trace: kernels were lost\n")
    assert len(heads(text, "TRUSTED", "UNTRUSTED")) == 1


def test_several_calls_have_their_verdicts_in_the_table_only(sd: Any) -> None:
    """One column; the newest trace below adds no other."""
    with stepscope.profile(sd, steps=1) as session:
        pipelines.sd(sd, 3)
        pipelines.sd(sd, 3)
    text = reported(session)
    assert "The trace of call 1:" in text
    assert not heads(text, "TRUSTED", "UNTRUSTED")
    assert heads(text, "Steps ") == ["Steps"]  # in the trace, the table
    assert "\nSteps in the trace ──" in text
