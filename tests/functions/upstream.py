"""An upstream that answers as a test says."""

from __future__ import annotations

from tests.contract.answering import HttpServer, ReceivedRequest, Reply


class Upstream(HttpServer):
    """Answers with *reply*, or with the one of *replies* that has its name in the path.

    *asked* are the paths, *headers* those of the last request.
    """

    def __init__(self) -> None:
        super().__init__(self._reply)
        self.reply, self.replies = Reply(), dict[str, Reply]()
        self.asked, self.headers = list[str](), dict[str, str]()
        self.ports = set[int]()
        self.url += "/feeds/main"

    def _reply(self, request: ReceivedRequest) -> Reply:
        self.asked.append(request.path)
        self.headers = {name.lower(): value for name, value in request.headers.items()}
        self.ports.add(request.port)
        named = self.replies.items()
        return next((each for name, each in named if name in request.path), self.reply)
