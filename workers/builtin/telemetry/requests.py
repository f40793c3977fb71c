"""Requests to the model as spans: one ``chat`` for each, also for one that is sent again."""

from cmdc_runtime import events
from cmdc_runtime.messages import OPENING
from workers.builtin.telemetry import names
from workers.builtin.telemetry.content import messages_json
from workers.builtin.telemetry.operations import Attributes
from workers.builtin.telemetry.sheet import (
    REQUEST,
    Ending,
    Sheet,
    error_kind,
    model_attributes,
    request_kinds,
    usage_attributes,
)


class Requests:
    """The request that is under way, and what is known of earlier ones of the cycle."""

    def __init__(self, sheet: Sheet) -> None:
        """Tell on ``sheet``."""
        self._sheet = sheet
        self._model = ""
        self._has_begun = False
        self._attempt = 1
        self.count = 0
        """Of the cycle."""

    def begin_cycle(self) -> None:
        """Forget the cycle before."""
        self._attempt, self.count = 1, 0

    def start(self, event: events.RequestStart) -> None:
        """Open a request."""
        if self._sheet.has(REQUEST):
            self.end(Ending("unknown"))
        more: Attributes = {"cmdc.request.messages": event.messages}
        if self._attempt > 1:
            more["cmdc.request.attempt"] = self._attempt
        if self._sheet.captures:
            # The conversation may have grown since.
            sent = self._sheet.facts.messages[: event.messages]
            more[names.INPUT_MESSAGES], omitted = messages_json(sent)
            if omitted:
                more["cmdc.request.messages_omitted"] = omitted
        self._open(event.model, more)

    def begin_answer(self, _event: events.MessageStart | events.ThinkingStart) -> None:
        """Take the time until the first piece of the answer."""
        sheet = self._sheet
        if self._has_begun or not sheet.has(REQUEST):
            return
        self._has_begun = True
        waited_s = sheet.elapsed_s(REQUEST)
        sheet.describe(REQUEST, {names.TIME_TO_FIRST_CHUNK: waited_s})
        kinds = request_kinds(self._model)
        sheet.measure(names.OPERATION_TIME_TO_FIRST_CHUNK, waited_s, kinds)

    def complete(self, event: events.ResponseComplete) -> None:
        """End the request: it has its answer."""
        sheet, message = self._sheet, event.message
        if OPENING in message.metadata:
            return  # no request was made for it
        if not sheet.has(REQUEST):
            self._open(sheet.facts.model, {"cmdc.begin": "unknown"})
        used = usage_attributes(event.usage)
        sheet.describe(REQUEST, used)
        if reason := message.metadata.get("finish_reason"):
            sheet.describe(REQUEST, {names.FINISH_REASONS: (str(reason),)})
        if sheet.captures:
            sheet.describe(REQUEST, {names.OUTPUT_MESSAGES: messages_json([message])[0]})
        sheet.spend(event.usage, self._model, "answer")
        self.end(Ending("finished"), used)
        self._attempt = 1

    def fail(self, event: events.StreamError) -> None:
        """End the request: it failed."""
        if self._sheet.has(REQUEST):
            error = names.word_of(event.reason) or names.OTHER_ERROR
            self.end(Ending("failed", error, event.reason))

    def end(self, ending: Ending, told: Attributes | None = None) -> None:
        """End the request."""
        sheet = self._sheet
        summary: Attributes = {
            "cmdc.outcome": ending.outcome,
            "cmdc.duration_ms": sheet.elapsed_ms(REQUEST),
        }
        sheet.note(names.LLM_REQUEST, {**summary, **(told or {})})
        kinds = {**request_kinds(self._model), **error_kind(ending)}
        sheet.measure(names.OPERATION_DURATION, sheet.elapsed_s(REQUEST), kinds)
        sheet.close(REQUEST, ending)

    def retry(self, event: events.Retry) -> None:
        """Tell that the request will be sent again."""
        self._attempt = event.attempt + 1
        told: Attributes = {"cmdc.attempt": event.attempt, "cmdc.delay_ms": event.delay_ms}
        self._sheet.note(names.LLM_RETRY, told)

    def reset(self, _event: events.StreamReset) -> None:
        """Tell that what was shown of the answer is void."""
        self._sheet.note(names.LLM_RESET, {})

    def stall(self, event: events.StreamStalled) -> None:
        """Tell that nothing comes."""
        self._sheet.note(names.LLM_STALLED, {"cmdc.elapsed_s": event.elapsed_s})

    def overflow(self, _event: events.ContextOverflow) -> None:
        """Tell that the conversation is too long for the model."""
        self._sheet.note(names.LLM_OVERFLOW, {})

    def switch_model(self, event: events.ModelSwitched) -> None:
        """Tell which model the next request goes to."""
        told: Attributes = {"cmdc.model.from": event.from_, "cmdc.model.to": event.to}
        self._sheet.note(names.MODEL_SWITCHED, told)

    def compact(self, event: events.ConversationCompacted) -> None:
        """Tell what was summed up, and count what that took."""
        trigger: Attributes = {"cmdc.trigger": event.trigger}
        told: Attributes = {
            "cmdc.messages.before": event.before,
            "cmdc.messages.after": event.after,
        }
        self._sheet.note(names.COMPACTOR_RUN, {**trigger, **told, **usage_attributes(event.usage)})
        self._sheet.measure(names.COMPACTOR_RUNS, 1, trigger)
        self._sheet.spend(event.usage, self._sheet.facts.model, "compaction")

    def spend_by_plugin(self, event: events.PluginModelCall) -> None:
        """Count what a plugin asked a model for itself."""
        self._sheet.spend(event.usage, event.model, "plugin")

    def _open(self, model: str, more: Attributes) -> None:
        subject = names.model_id_of(model)
        attributes = {**model_attributes(model), **more}
        self._sheet.open(REQUEST, names.CHAT, subject, attributes)
        self._model, self._has_begun = model, False
        self.count += 1
