"""The definition of a pipeline, and its effect on messages."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tidings.client.errors import Unwritten
from tidings.pipelines import Call, Message, Pipeline, Source, omit, remap
from tidings.pipelines.messages import COMMAND, EVERYTHING, WrongPipeline
from tidings.pipelines.pipeline import Step

SOURCE = Source("http://127.0.0.1:8042")


def message(name: str, namespace: str = "video", op: str = "insert") -> Message:
    return Message(op, namespace, "", {"type": namespace, "id": name}, "0" * 24)


class Kept:
    """A store that remembers."""

    def __init__(self, refuses: str = "") -> None:
        self.found: list[tuple[str, str]] = []
        self.refuses = refuses

    def __call__(self, batch: Sequence[Message]) -> None:
        for index, each in enumerate(batch):
            if each.key and each.key == self.refuses:
                raise Unwritten(index, "no")
            self.found.append((each.namespace, each.key))


def write(store: Kept, batch: list[Message], *steps: Step, namespace: str = EVERYTHING) -> None:
    """Write to the one store of a pipeline, through *steps*."""
    pipeline = Pipeline("p", SOURCE).save("one", Call(store), *steps, namespace=namespace)
    pipeline.branches[0].write(batch, 1)


@pytest.mark.parametrize("name", ["", "A", "a.b", "a" * 32, "-a", None])
def test_T38_every_store_has_a_name(name: str) -> None:
    """Without a name it would start over each time; two stores cannot share one."""
    with pytest.raises(WrongPipeline, match="must have 1 to 31 characters"):
        Pipeline("p", SOURCE).save(name, Call(print))
    with pytest.raises(WrongPipeline, match="must have 1 to 31 characters"):
        Pipeline(name, SOURCE)
    with pytest.raises(WrongPipeline, match="a store 'one' already"):
        Pipeline("p", SOURCE).save("one", Call(print)).save("one", Call(print))


def test_T39_what_a_pipeline_does_not_know_is_refused() -> None:
    """An unknown option, a wrong start, and a value that is not a function are refused."""
    with pytest.raises(TypeError):
        Source("http://127.0.0.1:8042", form="now")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Pipeline("p", SOURCE).save("one", Call(print), name_space="a")  # type: ignore[call-arg]
    with pytest.raises(WrongPipeline, match="start must be one of copy, oldest, now"):
        Source("http://127.0.0.1:8042", start="begin")
    with pytest.raises(WrongPipeline, match="'omit' is not a function"):
        Pipeline("p", SOURCE).save("one", Call(print), "omit")  # type: ignore[arg-type]
    with pytest.raises(WrongPipeline, match="not a regular expression"):
        Pipeline("p", SOURCE).save("one", Call(print), namespace="/(/")


@pytest.mark.parametrize(
    ("namespace", "kept"),
    [
        ("/.*/", ["video", "videos", "user"]),
        ("video", ["video", "videos"]),
        ("/video/", ["video", "videos"]),
        ("/^video$/", ["video"]),
        ("/ser/", ["user"]),
    ],
)
def test_T26_a_namespace_is_a_regular_expression(namespace: str, kept: list[str]) -> None:
    """It is searched anywhere, with slashes around it or not; by default it matches everything."""
    store = Kept()
    batch = [message("a", each) for each in ("video", "videos", "user")]
    write(store, batch, namespace=namespace)
    assert [namespace for namespace, _ in store.found] == kept


def test_T27_T29_functions_in_their_order_and_each_store_its_own() -> None:
    """Each function sees op, namespace, ts and data, and may change them for the later ones."""

    def shout(found: Message) -> Message:
        found.op, found.ts = "update", "later"
        found.data["id"] = f"{found.data['id']}-{found.namespace}"
        return found

    first, second = Kept(), Kept()
    pipeline = Pipeline("p", SOURCE)
    pipeline.save("one", Call(first), remap({"video": "film"}), shout)
    pipeline.save("two", Call(second), shout, remap({"video": "film"}), ("/user/", omit("id")))
    for branch in pipeline.branches:
        branch.write([message("a")], 1)
    assert first.found == [("film", "a-film")]
    assert second.found == [("film", "a-video")]


@pytest.mark.parametrize("answer", ["nothing", "skip"])
def test_T28_T10_what_a_function_leaves_out_is_written(answer: str) -> None:
    """It counts as written to that store; a batch without other messages is not sent at all."""

    def leave_out(found: Message) -> Message | None:
        if answer == "nothing":
            return None
        found.op = "skip"
        return found

    store = Kept()
    write(store, [message("a"), message("b")], leave_out)
    assert store.found == []


def test_T30_a_function_that_fails_stops_at_its_message() -> None:
    """The messages before it are written, and the error has its index and the reason."""

    def fragile(found: Message) -> Message | None:
        if found.key == "c":
            raise KeyError("title")
        return None if found.key == "a" else found

    store = Kept()
    with pytest.raises(Unwritten, match="KeyError: 'title'") as failed:
        write(store, [message(name) for name in "abcd"], fragile)
    assert failed.value.index == 2
    assert [key for _, key in store.found] == ["b"]


def test_T13_a_store_that_fails_names_the_message_as_it_came() -> None:
    """The error has its original index, before the functions."""
    batch = [message("a", "user"), message("b"), message("c", "user"), message("d")]
    with pytest.raises(Unwritten) as failed:
        write(Kept(refuses="d"), batch, namespace="/video/")
    assert failed.value.index == 3


def test_T31_commands_pass_the_functions_by() -> None:
    """This holds for any namespace."""

    def fail(found: Message) -> Message:
        raise AssertionError

    store = Kept()
    write(store, [Message(COMMAND, "", "", {}, "1")], fail, namespace="/x/")
    assert store.found == [("", "")]
