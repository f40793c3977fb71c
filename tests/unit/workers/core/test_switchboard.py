"""Who each message of a shared MCP server is for."""

import json

import pytest

from workers.core import switchboard
from workers.core.switchboard import (
    LINGER_S,
    QUESTIONS_MAX,
    REQUESTS_MAX,
    Switchboard,
    ToAgent,
    ToServer,
)

NOW_S = 100.0


@pytest.fixture(name="board")
def _board():
    """Return a switchboard with the agents 1 and 2."""
    board = Switchboard()
    board.join(1)
    board.join(2)
    return board


def line(**message):
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def opened(sent):
    """Return what is sent as (to whom, message); 0 is the server."""
    return [(getattr(one, "agent", 0), json.loads(one.line)) for one in sent]


def asks(board, agent, own, method="tools/call", **params):
    """Have an agent ask; return the number that the server gets."""
    given = line(id=own, method=method, params=params)
    ((to, message),) = opened(board.from_agent(agent, given, NOW_S))

    assert (to, message["method"]) == (0, method)
    return message["id"]


def from_server(board, at_s=NOW_S, **message):
    return opened(board.from_server(line(**message), at_s))


# --- requests -------------------------------------------------------------------------------------


def test_requests_are_numbered_anew_and_answers_find_who_asked(board):
    """Two agents use the same id, and each gets its own answer under its own."""
    first = asks(board, 1, 7, name="add")
    second = asks(board, 2, 7, name="add")

    assert first != second
    assert from_server(board, id=second, result={"n": 2}) == [
        (2, {"jsonrpc": "2.0", "id": 7, "result": {"n": 2}})
    ]
    assert from_server(board, id=first, error={"code": 1, "message": "no"}) == [
        (1, {"jsonrpc": "2.0", "id": 7, "error": {"code": 1, "message": "no"}})
    ]


def test_an_id_that_is_text_comes_back_as_text(board):
    """1 and "1" are two requests."""
    text, number = asks(board, 1, "1"), asks(board, 1, 1)

    assert from_server(board, id=text, result=1)[0][1]["id"] == "1"
    assert from_server(board, id=number, result=1)[0][1]["id"] == 1


@pytest.mark.parametrize("rest", ['"result": NaN}', '"result": "half', '"result": [' * 3000])
def test_an_answer_that_cannot_be_read_goes_to_who_asked_as_it_is(board, rest):
    """Under the number of that agent, which says what is wrong; and once."""
    number = asks(board, 1, "one")
    head = '{"cmdc": 1, "jsonrpc": "2.0", "id": '

    (sent,) = board.from_server(f"{head}{number}, {rest}\n".encode(), NOW_S)
    assert sent == ToAgent(1, f' {head}"one", {rest}'.encode())
    assert board.from_server(f"{head}{number}, {rest}\n".encode(), NOW_S) == []


def test_an_opening_that_cannot_be_read_goes_to_all_who_wait(board):
    """And the next one asks again."""
    for agent in (1, 2):
        sent = board.from_agent(agent, line(id=agent * 10, method="initialize"), NOW_S)
    assert sent == []
    found = board.from_server(b'{"jsonrpc": "2.0", "id": 1, "result": {', NOW_S)

    assert found == [
        ToAgent(1, b' {"jsonrpc": "2.0", "id": 10, "result": {'),
        ToAgent(2, b' {"jsonrpc": "2.0", "id": 20, "result": {'),
    ]
    assert opened(board.from_agent(1, line(id=11, method="initialize"), NOW_S))[0][0] == 0


def test_an_answer_is_passed_on_once(board):
    """What comes a second time, or was never asked for, is nobody's."""
    number = asks(board, 1, 7)
    from_server(board, id=number, result={})

    assert from_server(board, id=number, result={}) == []
    assert from_server(board, id=99, result={}) == []
    assert from_server(board, id=None, error={"code": 1, "message": "?"}) == []


def test_an_id_is_free_again_when_its_request_is_answered(board):
    """An agent may number its requests as it likes."""
    from_server(board, id=asks(board, 1, 7), result={})

    assert from_server(board, id=asks(board, 1, 7), result={})[0][1]["id"] == 7


def test_what_is_asked_beyond_the_table_is_refused(board):
    """A request that a server would remember for all sessions never reaches it."""
    given = line(id=3, method="logging/setLevel", params={"level": "debug"})
    ((to, message),) = opened(board.from_agent(1, given, NOW_S))

    assert (to, message["id"], message["error"]["code"]) == (1, 3, switchboard.UNKNOWN)


def test_an_id_in_use_and_too_many_requests_are_refused(board):
    """Neither takes anything from another agent."""
    asks(board, 1, 0)
    again = opened(board.from_agent(1, line(id=0, method="ping"), NOW_S))
    for own in range(1, REQUESTS_MAX):
        asks(board, 1, own)
    more = opened(board.from_agent(1, line(id="more", method="ping"), NOW_S))

    assert [one["error"]["code"] for _, one in again + more] == [
        switchboard.INVALID,
        switchboard.BUSY,
    ]
    asks(board, 2, 0)


@pytest.mark.parametrize(
    "junk", [b"\n", b"no json\n", b"[1]\n", b'{"id": 1.5, "method": "ping"}\n', b"[" * 100_000]
)
def test_junk_is_nothing(board, junk):
    """Neither an agent nor the server breaks it."""
    assert board.from_agent(1, junk, NOW_S) == []
    assert board.from_server(junk, NOW_S) == []


def test_half_of_a_message_is_nothing(board):
    """An id of nothing, parameters that are no object: they are answered by nobody, or passed."""
    assert opened(board.from_agent(1, line(id=None, method="ping"), NOW_S)) == []
    assert from_server(board, id=None, method="ping") == []
    asks_list = board.from_agent(1, line(id=1, method="ping", params=[1]), NOW_S)

    assert opened(asks_list)[0][1]["params"] == [1]


def test_an_agent_that_has_not_joined_is_not_heard(board):
    """Nothing of it reaches the server."""
    assert board.from_agent(3, line(id=1, method="ping"), NOW_S) == []


# --- the handshake --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", sorted(switchboard.OPENINGS))
def test_the_handshake_is_had_once(board, method):
    """Who comes meanwhile waits for the same answer, and who comes later has it at once."""
    number = asks(board, 1, 0, method, protocolVersion="x")
    waits = board.from_agent(2, line(id=5, method=method), NOW_S)
    heard = from_server(board, id=number, result={"era": "x"})
    later = opened(board.from_agent(2, line(id=6, method=method), NOW_S))

    assert waits == []
    assert [(to, one["id"], one["result"]) for to, one in heard + later] == [
        (1, 0, {"era": "x"}),
        (2, 5, {"era": "x"}),
        (2, 6, {"era": "x"}),
    ]


def test_a_handshake_that_fails_is_tried_again(board):
    """All who wait get the error, and the next one asks the server."""
    number = asks(board, 1, 0, "server/discover")
    heard = from_server(board, id=number, error={"code": -32601, "message": "what?"})

    assert [(to, one["error"]["code"]) for to, one in heard] == [(1, -32601)]
    assert asks(board, 1, 1, "server/discover") != number


def test_the_handshake_goes_on_without_who_began_it(board):
    """It is cancelled for nobody: others may wait for it."""
    number = asks(board, 1, 0, "initialize")
    board.from_agent(2, line(id=5, method="initialize"), NOW_S)
    board.from_agent(2, line(id=6, method="initialize"), NOW_S)
    given_up = line(method="notifications/cancelled", params={"requestId": 6})

    assert board.leave(1, NOW_S) == []
    assert board.from_agent(2, given_up, NOW_S) == []
    assert [(to, one["id"]) for to, one in from_server(board, id=number, result={})] == [(2, 5)]


def test_an_answer_that_comes_amid_the_handshake_is_no_handshake(board):
    """It goes to who asked, and the handshake goes on."""
    number = asks(board, 1, 0, "initialize")
    other = asks(board, 2, 5)

    assert [(to, one["id"]) for to, one in from_server(board, id=other, result={})] == [(2, 5)]
    assert from_server(board, id=None, error={"code": 1, "message": "?"}) == []
    assert [(to, one["id"]) for to, one in from_server(board, id=number, result={})] == [(1, 0)]


def test_initialized_is_said_once(board):
    """The server hears of one client."""
    said = line(method="notifications/initialized")

    assert len(board.from_agent(1, said, NOW_S)) == 1
    assert board.from_agent(2, said, NOW_S) == []


# --- cancelling -----------------------------------------------------------------------------------


def test_a_cancellation_is_of_the_agent_that_sends_it(board):
    """Its request has the server's number, and that of another agent goes on."""
    (asked,) = board.from_agent(1, line(id=7, method="tools/call"), NOW_S)
    first, second = json.loads(asked.line)["id"], asks(board, 2, 7)
    params = {"requestId": 7, "reason": "enough"}
    sent = board.from_agent(1, line(method="notifications/cancelled", params=params), NOW_S)

    assert opened(sent)[0][1]["params"] == {"requestId": first}
    assert (asked.cancels, sent[0].cancels) == (False, True)
    assert from_server(board, id=first, result={}) == []
    assert from_server(board, id=second, result={})[0][0] == 2


@pytest.mark.parametrize("params", [{}, {"requestId": 99}, {"requestId": 1.5}, {"requestId": None}])
def test_a_cancellation_of_nothing_is_nothing(board, params):
    """Above all, no other agent's request."""
    asks(board, 2, 99)

    assert board.from_agent(1, line(method="notifications/cancelled", params=params), NOW_S) == []


def test_who_leaves_has_its_own_requests_cancelled(board):
    """And no other's."""
    first, second = asks(board, 1, 1), asks(board, 2, 1)

    assert [one["params"] for _, one in opened(board.leave(1, NOW_S))] == [{"requestId": first}]
    assert from_server(board, id=second, result={})[0][0] == 2


# --- what the server announces --------------------------------------------------------------------


def test_progress_goes_to_who_asked_under_its_own_token(board):
    """A token is renumbered as the request is; one without a token gets nothing."""
    number = asks(board, 1, 7, _meta={"progressToken": "own", "x": 1})
    silent = asks(board, 2, 7)
    progress = {"progress": 1, "total": 3}
    heard = from_server(
        board, method="notifications/progress", params={"progressToken": number, **progress}
    )

    assert heard == [
        (
            1,
            {
                "jsonrpc": "2.0",
                "method": "notifications/progress",
                "params": {"progressToken": "own", **progress},
            },
        )
    ]
    for other in (silent, 99, "own", None):
        params = {"progressToken": other, **progress}
        assert from_server(board, method="notifications/progress", params=params) == []


def test_the_token_that_the_server_gets_is_its_number(board):
    """Tokens of two agents would be alike."""
    given = line(id=7, method="tools/call", params={"_meta": {"progressToken": 7, "x": 1}})
    ((_, message),) = opened(board.from_agent(2, given, NOW_S))

    assert message["params"]["_meta"] == {"progressToken": message["id"], "x": 1}


def test_a_notification_goes_to_who_subscribed(board):
    """Under the number that it has there."""
    key = "io.modelcontextprotocol/subscriptionId"
    number = asks(board, 2, "listen-1", "subscriptions/listen")
    params = {"_meta": {key: number}}
    heard = from_server(board, method="notifications/tools/list_changed", params=params)
    stray = {"_meta": {key: 99}}

    assert [(to, one["params"]["_meta"]) for to, one in heard] == [(2, {key: "listen-1"})]
    assert from_server(board, method="notifications/tools/list_changed", params=stray) == []


@pytest.mark.parametrize("method", sorted(switchboard.FOR_ALL))
def test_a_list_that_has_changed_is_reported_to_all(board, method):
    """It belongs to no session."""
    assert [to for to, _ in from_server(board, method=method)] == [1, 2]


@pytest.mark.parametrize("method", ["notifications/message", "notifications/resources/updated"])
def test_what_belongs_to_no_request_is_reported_to_nobody(board, method):
    """A line of a server's log may be of one session's work."""
    asks(board, 1, 1)

    assert from_server(board, method=method, params={"data": "secret"}) == []


# --- what the server asks -------------------------------------------------------------------------

QUESTION = {"id": "q1", "method": "elicitation/create", "params": {"message": "Who?"}}


def answer(board, agent, asked="q1"):
    return opened(board.from_agent(agent, line(id=asked, result={"action": "decline"}), NOW_S))


def test_a_question_goes_to_the_one_whose_call_runs(board):
    """And its answer to the server; another agent's is none."""
    asks(board, 2, 1)
    asks(board, 1, 1, "tools/list")

    assert [(to, one["id"]) for to, one in from_server(board, **QUESTION)] == [(2, "q1")]
    assert answer(board, 1) == []
    assert [to for to, _ in answer(board, 2)] == [0]
    assert answer(board, 2) == []


def test_a_question_that_several_could_be_meant_by_is_refused(board):
    """So is one that nobody's call is about."""
    nobody = from_server(board, **QUESTION)
    asks(board, 1, 1)
    asks(board, 2, 1)
    several = from_server(board, **QUESTION)

    assert [(to, one["id"], one["error"]["code"]) for to, one in nobody + several] == [
        (0, "q1", switchboard.INVALID)
    ] * 2
    assert "no call" in nobody[0][1]["error"]["message"]
    assert "several sessions" in several[0][1]["error"]["message"]


def test_too_many_questions_are_refused(board):
    """As many as are allowed wait for the one whose call runs."""
    asks(board, 1, 1)
    heard = [from_server(board, **QUESTION | {"id": asked})[0][0] for asked in range(QUESTIONS_MAX)]

    assert heard == [1] * QUESTIONS_MAX
    assert from_server(board, **QUESTION)[0][0] == 0


def test_a_call_that_was_cancelled_may_still_be_meant(board):
    """So its question reaches no other session; after a while it can't be."""
    asks(board, 1, 1)
    asks(board, 2, 1)
    params = {"requestId": 1}
    board.from_agent(1, line(method="notifications/cancelled", params=params), NOW_S)

    assert from_server(board, **QUESTION)[0][0] == 0
    assert from_server(board, NOW_S + LINGER_S, **QUESTION)[0][0] == 2


def test_a_question_for_one_who_has_left_is_refused(board):
    """Its call was the only one."""
    asks(board, 1, 1)
    board.leave(1, NOW_S)

    assert "gone" in from_server(board, **QUESTION)[0][1]["error"]["message"]


def test_who_leaves_answers_no_more(board):
    """The server learns that nobody will."""
    asks(board, 1, 1)
    from_server(board, **QUESTION)
    sent = opened(board.leave(1, NOW_S))

    assert [(to, one.get("id")) for to, one in sent] == [(0, None), (0, "q1")]


def test_who_leaves_takes_no_question_of_another_along(board):
    """It is still to be answered."""
    asks(board, 1, 1)
    from_server(board, **QUESTION)

    assert board.leave(2, NOW_S) == []
    assert [to for to, _ in answer(board, 1)] == [0]


def test_a_question_that_the_server_gives_up(board):
    """Who was asked hears of it, once."""
    asks(board, 1, 1)
    from_server(board, **QUESTION)
    given_up = {"method": "notifications/cancelled", "params": {"requestId": "q1"}}

    assert [to for to, _ in from_server(board, **given_up)] == [1]
    assert from_server(board, **given_up) == []
    assert answer(board, 1) == []


def test_a_ping_is_answered_at_once_and_other_questions_refused(board):
    """No session is troubled."""
    asks(board, 1, 1)
    ping = from_server(board, id=1, method="ping")
    other = from_server(board, id=2, method="tasks/get")

    assert ping == [(0, {"jsonrpc": "2.0", "id": 1, "result": {}})]
    assert [(to, one["error"]["code"]) for to, one in other] == [(0, switchboard.UNKNOWN)]


def test_what_an_agent_announces_is_not_passed_on(board):
    """But for what the tables have."""
    assert board.from_agent(1, line(method="notifications/roots/list_changed"), NOW_S) == []
    assert board.from_agent(1, line(id="q9", result={}), NOW_S) == []


def test_a_probe_is_answered_to_nobody(board):
    """It only shows that the server answers."""
    sent = board.probe()

    assert isinstance(sent, ToServer)
    assert from_server(board, id=json.loads(sent.line)["id"], result={"tools": []}) == []
    assert board.from_server(line(method="notifications/tools/list_changed"), NOW_S) == [
        ToAgent(1, b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'),
        ToAgent(2, b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'),
    ]


def test_half_a_surrogate_in_an_answer_is_replaced(board):
    """Whoever asked has an answer, under its own number."""
    number = asks(board, 1, 7)
    answer = rb'{"jsonrpc": "2.0", "id": %d, "result": {"a": "y\ud800z"}}' % number

    assert opened(board.from_server(answer, NOW_S))[0][1] == {
        "jsonrpc": "2.0",
        "id": 7,
        "result": {"a": "y�z"},
    }
