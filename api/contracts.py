"""What callers send and read: pydantic, at this edge only, with the maps to commands and from rows.

Requests are strict (no field that is not listed, no silent conversion); answers are documented
here and written by orjson. Amounts are integers in micros, times are UTC instants with
milliseconds.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    StringConstraints,
    TypeAdapter,
    model_validator,
)

from schema.failures import FailureClass
from schema.ids import DIGEST_CHARACTERS, SHARD_DIGITS
from schema.words import Lane, MediaKind, Scene, Status

PARAMETER_BYTES_MAX = 16_384
FULL_SIZE = "1080p"
PREVIEWED = (Scene.AUTOCUT, Scene.SMART)
"""Scenes whose first result is a preview; publishing makes it again in full size."""
MATERIALS_MAX = 16
MATERIALS_MAX_OF = {"smart": 40, "genai": 1, "matting": 500}
DEADLINE_SECONDS_MAX = 30 * 86_400
UPLOAD_BYTES_MAX = 500_000_000_000
"""Of one file, whatever the tier: 10,000 parts of 50 MB."""
INPUT_SECONDS_MAX = 7 * 86_400
FINGERPRINT_BYTES = 16

Id = Annotated[
    str,
    StringConstraints(
        pattern=rf"^[0-9a-hjkmnp-tv-z]{{{DIGEST_CHARACTERS}}}[0-9]{{{SHARD_DIGITS}}}$"
    ),
]
"""A task or material id: 26 characters and the 6 digits of its user's shard."""
MaterialStatus = Literal[
    "REGISTERED", "ASSEMBLING", "READY", "COLD", "REFUSED", "ABORTED", "pending"
]
"""`pending`: asked for, its answer is on the way."""
_FILE_NAME = r"^[^\x00-\x1f\x7f-\x9f/\\\u200e\u200f\u2028-\u202e\u2066-\u2069]+$"
"""No path, no control characters, none that turn the direction of writing."""
Title = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Prompt = Annotated[str, StringConstraints(min_length=1, max_length=4_000)]
Why = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"\S")]


class Strict(BaseModel):
    """A request: nothing unknown, nothing converted."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class View(BaseModel):
    """An answer. Fields may be added; callers ignore what they do not know."""

    model_config = ConfigDict(extra="forbid")


class Nothing(Strict):
    """An empty object."""


# --- submissions --------------------------------------------------------------------------------


class AutocutParameters(Strict):
    """A film of the best moments of one clip."""

    target_seconds: float = Field(default=15.0, ge=1, le=600, description="Length of the film.")
    min_shot_seconds: float = Field(default=1.0, ge=0.2, le=30)
    silence_db: float = Field(
        default=-40.0, ge=-90, le=-10, description="Silent under this peak, in dBFS."
    )
    silence_seconds: float = Field(default=0.5, ge=0.1, le=30, description="Shorter pauses stay.")
    margin_seconds: float = Field(
        default=0.1, ge=0, le=2, description="Room that is left before and after speech."
    )
    aspect: Literal["source", "16:9", "1:1", "9:16"] = Field(
        default="source", description="Shape of the film; the window follows the subject."
    )
    size: Literal["720p", "1080p"] = Field(
        default="720p",
        description="Lines of the shorter side. 1080p is made by publishing the preview, only.",
    )
    title: str = Field(
        default="", max_length=120, description="Stands on the film's first seconds: all see it."
    )
    beats: bool = Field(default=True, description="Cut to the beats of the music.")


class RehearsalParameters(Strict):
    """No media work: waits, reports and fails as asked. For tests, load and drills."""

    seconds: float = Field(default=0.0, ge=0, le=86_400)
    steps: int = Field(default=10, ge=1, le=100_000)
    reports: int = Field(default=10, ge=0, le=100_000)
    fail: Annotated[FailureClass, Field(strict=False)] | None = None
    fail_on_attempts: list[Annotated[int, Field(ge=1, le=1_000)]] = Field(
        default=[], max_length=100
    )
    crash: bool = False
    hang: bool = False
    no_op: bool = False
    save_steps: int = Field(
        default=1, ge=0, le=100_000, description="It can be saved after so many steps; 0: never."
    )
    saving_seconds: float = Field(default=0.0, ge=0, le=86_400, description="What saving takes.")


class SubmissionFields(Strict):
    """What every submission may say."""

    materials: list[Id] = Field(
        [], max_length=MATERIALS_MAX, description="Ids of uploaded (or promised) materials."
    )
    title: Title | None = Field(
        default=None, description="Yours only: sealed before it is written."
    )

    deadline_seconds: int | None = Field(
        default=None,
        ge=1,
        le=DEADLINE_SECONDS_MAX,
        description="Wanted in so long. Refused (409) when it cannot be done by then.",
    )

    @model_validator(mode="after")
    def _materials_once(self) -> Self:
        if len(set(self.materials)) != len(self.materials):
            raise ValueError("materials names one twice")
        return self


class AutocutSubmission(SubmissionFields):
    """One clip becomes a short film with a poster."""

    scene: Literal["autocut"]
    materials: list[Id] = Field(
        min_length=1, max_length=2, description="The clip and, if wanted, a piece of music."
    )
    parameters: AutocutParameters = AutocutParameters()


class RehearsalSubmission(SubmissionFields):
    """A task without media."""

    scene: Literal["rehearsal"]
    parameters: RehearsalParameters = RehearsalParameters()


class OtherSubmission(SubmissionFields):
    """Their parameters are judged before anything is taken; a refusal tells what is allowed."""

    scene: Literal["smart", "genai", "matting"]
    materials: list[Id] = Field(
        [],
        max_length=max(MATERIALS_MAX_OF.values()),
        description="smart takes 40 at most, genai one, matting 500.",
    )
    prompt: Prompt | None = Field(
        default=None, description="Yours only: sealed before it is written."
    )
    parameters: dict[str, JsonValue] = {}

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        most = MATERIALS_MAX_OF[self.scene]
        if len(self.materials) > most:
            raise ValueError(f"{self.scene} takes {most} materials at most")
        if len(orjson.dumps(self.parameters)) > PARAMETER_BYTES_MAX:
            raise ValueError(f"parameters are longer than {PARAMETER_BYTES_MAX} bytes")
        return self


Submission = Annotated[
    AutocutSubmission | RehearsalSubmission | OtherSubmission, Discriminator("scene")
]
SUBMISSION: TypeAdapter[AutocutSubmission | RehearsalSubmission | OtherSubmission] = TypeAdapter(
    Submission
)


class Request:
    """A checked submission in the words of the commands: what `POST /v1/tasks` asks for."""

    __slots__ = (
        "asks_full_size", "deadline_seconds", "fingerprint", "materials", "parameters", "private",
        "scene", "wishes",
    )  # fmt: skip

    def __init__(self, document: Mapping[str, Any], fingerprint_key: bytes) -> None:
        submission = SUBMISSION.validate_python(document)
        self.scene = Scene(submission.scene)
        self.materials: list[str] = submission.materials
        self.deadline_seconds: int | None = submission.deadline_seconds
        self.parameters: dict[str, Any] = document.get("parameters") or {}
        """As they were sent: defaults belong to the pipeline, and may change there."""
        self.asks_full_size = self.scene in PREVIEWED and self.parameters.get("size") == FULL_SIZE
        private: dict[str, str] = {}
        if self.scene is Scene.GENAI:  # words of people travel sealed, wherever they were said
            private = {
                name: words
                for name in ("prompt", "negative_prompt")
                if isinstance(words := self.parameters.get(name), str)
            }
            self.parameters = {k: v for k, v in self.parameters.items() if k not in private}
        if submission.title is not None:
            private["title"] = submission.title
        if isinstance(submission, OtherSubmission) and submission.prompt is not None:
            private["prompt"] = submission.prompt
        self.private = private
        self.wishes = self.parameters
        """The parameters as the pipeline will read them: with the words that travel sealed."""
        if self.scene is Scene.GENAI:
            words = {name: said for name, said in private.items() if name != "title"}
            self.wishes = self.parameters | words
        self.fingerprint = fingerprint(document, fingerprint_key)


def fingerprint(document: Mapping[str, Any], key: bytes) -> str:
    """Digest of a body: equal for equal JSON however it is spaced or ordered.

    Keyed with a secret of the installation: a title is in it and would be guessed otherwise.
    """
    canonical = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
    return blake2b(canonical, key=key, digest_size=FINGERPRINT_BYTES).hexdigest()


@lru_cache(maxsize=8)
def fingerprint_key(secret: bytes) -> bytes:
    """The key of fingerprints, derived from the secret of the installation."""
    return blake2b(b"fingerprint", key=blake2b(secret).digest()).digest()


class RemainingView(View):
    """What a user has left in a scene after this answer."""

    minute: int
    minute_resets_at: datetime
    day: int
    day_resets_at: datetime
    credits_micros: int
    credits_reset_at: datetime
    contract_micros: int | None = Field(
        default=None, description="None: no contract limits this scene."
    )


class SubmissionView(View):
    """The answer to a submission. `pending`: it stands in the log, its decision is on the way."""

    task_id: Id
    status: Status | Literal["pending"]
    seq: int = Field(description="Number of the task's newest event; 0: none yet.")
    scene: Scene
    lane: Lane
    estimated_wait_seconds: int | None = Field(
        default=None, description="Until it starts, as things stand. Null: nobody can say."
    )
    reserved_micros: int | None = None
    remaining: RemainingView | None = None
    consistency_token: str = Field(
        description="Send it as `Cutlog-Consistency` with a GET that must not be older than this."
    )


class ActionView(View):
    """The answer to a cancel or a retry."""

    task_id: Id
    status: Status | Literal["pending"]
    seq: int
    reserved_micros: int | None = None
    remaining: RemainingView | None = None
    consistency_token: str


# --- tasks --------------------------------------------------------------------------------------


class FileView(View):
    name: str
    content_type: str
    size: int
    sha256: str


class TaskView(View):
    """A task as it stands."""

    task_id: Id
    status: Status
    seq: int = Field(description="Number of the newest event that changed it.")
    scene: Scene
    lane: Lane
    pool_id: str
    title: str | None
    parameters: dict[str, Any]
    materials: list[Id]
    percent: float | None = Field(
        description="While it runs: the further of milestone and progress."
    )
    storing: bool
    token: int = Field(description="Number of the last attempt that started; 0: none.")
    deadline_seconds: int | None = Field(description="In which it was wanted, from its creation.")
    lower_spec: bool = Field(description="It is made with less, because room or memory was short.")
    card_ms: int = Field(description="Card time of all attempts that are over.")
    card_measured: bool = Field(
        description="False: a part of `card_ms` was told by nobody and is estimated."
    )
    retries: int
    reserved_micros: int
    charge_micros: int | None
    failure: FailureClass | None
    last_failure: FailureClass | None
    message: str | None
    cause: str | None = Field(description="Who canceled it.")
    reason: str | None
    facts: dict[str, Any] | None = Field(description="What its pipeline tells of the result.")
    publishes: Id | None = Field(
        description="The task whose result this one makes again in full size."
    )
    published_by: Id | None = Field(
        description="The task that makes its result in full size; itself: it is that already."
    )
    result: Literal["hot", "cold", "withheld", "deleted"] | None = Field(
        description="What became of its result since; null: it has none."
    )
    files: list[FileView]
    created_at: datetime
    queued_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    updated_at: datetime


class NoTaskYet(View):
    """`pending`: asked for, not decided or not shown yet. `refused`: the submission was refused."""

    task_id: Id
    status: Literal["pending", "refused"]
    refusal: dict[str, Any] | None = Field(
        default=None, description="The problem it was refused with."
    )


class TaskList(View):
    tasks: list[TaskView]
    next_cursor: str | None = Field(description="For the next page; null: this was the last one.")


class ResultFileView(FileView):
    filename: str = Field(description="What it is called when it is downloaded.")
    url: str = Field(description="Good for an hour; takes Range.")
    url_until: datetime


class ResultView(View):
    task_id: Id
    files: list[ResultFileView]
    facts: dict[str, Any] | None


class PublishView(View):
    """What publishes a result."""

    task_id: Id
    published_by: Id = Field(description="The same task: it is full size already.")
    submission: SubmissionView | None = Field(
        description="The answer to the submission of that task; null: none was needed."
    )


class EventView(View):
    """A stored event of a task. What else it says depends on `event`."""

    model_config = ConfigDict(extra="allow")

    id: str = Field(description="Its place, for Last-Event-ID.")
    task_id: Id
    seq: int
    event: str = Field(description="Its name, e.g. `task.started.v1`.")
    status: Status | None = Field(default=None, description="Where the task stands after it.")
    at: datetime | None = None


class WaitView(View):
    """The answer to a long poll: what a stream would have told."""

    task: TaskView
    events: list[EventView]
    complete: bool = Field(description="False: events before these are not kept any more.")
    ended: bool = Field(description="Nothing more will come by itself.")


# --- materials ----------------------------------------------------------------------------------


class PartView(View):
    """A part to send: PUT exactly `size` bytes, from `(number - 1) x part_bytes` of the file on."""

    number: int
    url: str
    size: int


class StoredPartView(View):
    number: int
    size: int
    etag: str


class UploadView(View):
    """How to store the file: parts, in any order, several at once; each may be sent again."""

    part_bytes: int = Field(description="Of each part but the last.")
    parts_count: int
    stored_bytes: int = Field(description="Of parts that are there from an earlier beginning.")
    parts: list[PartView] = Field(
        description="The first ones that are missing; GET .../parts tells the next ones."
    )
    until: datetime = Field(description="When the addresses end; GET .../parts makes new ones.")


class ChallengeView(View):
    """The content is known here: who proves that he holds the file need not send it.

    Answer with `POST .../proof` within a minute: hex of sha256 of `nonce` (its characters) followed
    by the `length` bytes of the file from `offset` on.
    """

    nonce: str
    offset: int
    length: int


class PartsView(View):
    """How far an upload is."""

    material_id: Id
    status: MaterialStatus
    upload_id: str | None
    part_bytes: int
    parts_count: int
    stored: list[StoredPartView]
    missing: list[PartView] = Field(description="The first ones; empty: complete it.")
    missing_count: int
    until: datetime | None


class PieceView(View):
    """A piece of a part to send: PUT exactly `size` bytes, from `offset` of the part on."""

    offset: int
    size: int
    url: str


class PiecesView(View):
    """A part in pieces, for lines that break: less is sent again. Then `POST .../join`."""

    number: int
    size: int
    piece_bytes: int
    stored_bytes: int
    missing: list[PieceView]
    until: datetime


class MaterialFactsView(View):
    """What the file is, as it was measured."""

    model_config = ConfigDict(extra="allow")

    kind: MediaKind
    container: str
    video_codec: str
    audio_codec: str
    width: int
    height: int
    rotation: int
    frames: int
    duration_ms: int
    frame_rate: str
    pixels: int
    bit_rate: int
    has_audio: bool
    has_alpha: bool
    hdr: bool
    animated: bool


class MaterialView(View):
    material_id: Id
    status: MaterialStatus
    seq: int
    name: str | None = None
    content_type: str | None = None
    size: int | None = None
    sha256: str | None = None
    reason: str | None = Field(default=None, description="Why it was refused or aborted.")
    detail: str | None = None
    advice: str | None = Field(default=None, description="What to do about it.")
    facts: MaterialFactsView | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None


class MaterialList(View):
    materials: list[MaterialView]
    next_cursor: str | None = Field(description="For the next page; null: this was the last one.")


class RegisteredView(View):
    """The answer to a registration or a proof.

    With `upload`: send its parts, then complete it. With `challenge`: answer that first. With
    neither nothing is to be sent.
    """

    material_id: Id
    status: MaterialStatus
    upload: UploadView | None
    challenge: ChallengeView | None


class HintsView(View):
    """What became of the records of a store's notification."""

    taken: int = Field(description="Led to something.")
    ignored: dict[str, int] = Field(description="Led to nothing, by the reason.")


class MaterialRequest(Strict):
    """A file that is about to be uploaded."""

    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    size: int = Field(ge=1, le=UPLOAD_BYTES_MAX, description="Bytes.")
    content_type: Annotated[
        str, StringConstraints(pattern=r"^[a-z]+/[a-zA-Z0-9.+-]{1,100}$", max_length=120)
    ]
    name: Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=_FILE_NAME)] = (
        Field(description="The file's name, no path. Yours only: sealed before it is written.")
    )
    seconds: int | None = Field(
        default=None,
        ge=1,
        le=INPUT_SECONDS_MAX,
        description="The longest that it is; refused if it turns out to be longer.",
    )

    @model_validator(mode="after")
    def _named(self) -> Self:
        if not self.name.strip(" ."):
            raise ValueError("the name is none")
        return self


class ProofRequest(Strict):
    """The answer to a challenge."""

    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


# --- operators ----------------------------------------------------------------------------------


class PolicyRequest(Strict):
    """A whole policy; its version must be higher than the one that stands."""

    policy: dict[str, JsonValue]
    why: Why


class TopUpRequest(Strict):
    """Credits of this month on top, for a user's scene or (without `user_id`) for a contract."""

    account_id: Annotated[str, StringConstraints(pattern=r"^[tu]-[A-Za-z0-9._:@-]{1,128}$")]
    user_id: Annotated[str, StringConstraints(pattern=r"^[0-9a-z]{20}[0-9]{6}$")] | None = None
    scene: Annotated[Scene, Field(strict=False)]
    amount_micros: int = Field(ge=1, le=10**15)
    why: Why


class WhyRequest(Strict):
    """Why a lane is paused or resumed, or a breaker closed by hand."""

    why: Why


class ReleaseRequest(Strict):
    """Lets the commands parked behind a quarantined key go on, in their order."""

    topic: Literal["quota-commands", "task-commands", "pool-commands", "material-commands"]
    partition: int = Field(ge=0, le=1_023)
    key: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    why: Why


class LetterRequest(Strict):
    """What is done with dead letters, and why."""

    of: Annotated[str, StringConstraints(min_length=1, max_length=512)] = Field(
        description="The id of a letter, of a task or of a trace: all its open letters."
    )
    why: Why


class LetterView(View):
    """Something that could not be worked on, or a task that has no try left."""

    letter_id: str
    kind: Literal["command", "timer", "spent"] = Field(
        description="A record; a deadline found by a tick; a task whose retries are spent."
    )
    state: Literal["open", "redriven", "discarded", "replaced"] = Field(
        description="`replaced`: redriven and poison again, which is another letter."
    )
    topic: str
    partition: int
    offset: int
    cause: str
    quarantined_key: str
    holds_key: bool = Field(description="Commands of its key wait behind this letter.")
    task_id: str | None
    task_status: Status | None
    trace_id: str | None
    failure: FailureClass | None
    at: datetime
    who: str | None
    why: str | None
    closed_at: datetime | None


class WholeLetterView(LetterView):
    record: dict[str, Any] | None = Field(
        description="What was asked, without what is sealed for a person; null: nobody can read it."
    )
    record_bytes: int
    archived_as: str | None = Field(description="Its object in the store.")


class ParkedKeyView(View):
    partition: int
    key: str
    letter_id: str
    cause: str
    since: datetime


class LettersView(View):
    letters: list[LetterView]
    parked_keys: list[ParkedKeyView]


class WholeLettersView(View):
    letters: list[WholeLetterView]


class ClosedLetterView(View):
    """What becomes of a letter.

    `pending`: it stands in the log. `behind`: another letter of its key comes first. `known`: its
    task is there, asked for again since; the letter is closed, and nothing is done a second time.
    """

    letter_id: str
    task_id: str | None
    status: Literal["pending", "behind", "known"]
    behind: str | None = Field(default=None, description="The letter that comes first.")


class ClosedLettersView(View):
    letters: list[ClosedLetterView]


class DoneView(View):
    """The answer to an operator's command. `pending`: it stands in the log."""

    status: Literal["done", "pending"]


# --- quotas and pools ---------------------------------------------------------------------------


class CountView(View):
    limit: int
    used: int
    remaining: int
    resets_at: datetime


class CreditsView(View):
    limit_micros: int = Field(description="Top-ups included.")
    topped_up_micros: int
    reserved_micros: int
    spent_micros: int
    remaining_micros: int
    resets_at: datetime


class SceneQuotaView(View):
    scene: Scene
    lane: Lane
    minute: CountView
    day: CountView
    month: CreditsView
    contract: CreditsView | None = Field(description="Of the whole tenant; null: no such limit.")


class QuotasView(View):
    """What the caller has used and has left, as of a moment ago."""

    tier: str
    account_id: str
    policy_version: int
    scenes: list[SceneQuotaView]


class LaneView(View):
    lane: Lane
    waiting: int
    paused: bool
    paused_why: str | None
    queue_limit: int
    wait_max_seconds: int | None = Field(description="A longer estimate is refused (429).")
    arrivals_per_second: float = Field(description="Of the last minute.")
    estimated_wait_seconds: int | None = Field(description="Null: nobody can say.")
    wait_p50_seconds: float | None = Field(description="Of the starts of the last ten minutes.")
    wait_p95_seconds: float | None
    oldest_wait_seconds: float | None = Field(description="Of the first in line. Null: none waits.")


class BreakerView(View):
    """Open: nothing of the scene starts in this pool. Half open: a few attempts are let through."""

    scene: Scene
    state: Literal["closed", "open", "half_open"]
    failed: int
    counted: int
    who: str | None = Field(description="Who closed it by hand; told to operators.")
    why: str | None
    since: datetime


class ObjectiveView(View):
    """A figure of the last ten minutes against its bounds."""

    name: Literal[
        "wait_p95_seconds", "utilisation", "failure_share", "card_seconds", "estimate_error"
    ]
    lane: Lane | None = Field(description="Null: of the whole pool.")
    value: float | None = Field(description="Null: nothing happened that could be measured.")
    low: float | None
    high: float | None
    kept: bool | None
    cases: int = Field(description="Starts or ends that it is drawn from; 0: it is no share.")


class PoolView(View):
    pool_id: str
    scenes: list[Scene]
    slots: int
    used: int
    cards_wanted: int | None = Field(description="Null: the pool does not scale.")
    held_seconds: float | None = Field(description="Slot time for each slot freed of late.")
    lanes: list[LaneView]
    breakers: list[BreakerView]
    objectives: list[ObjectiveView]
    burnt_card_seconds: dict[str, float] = Field(
        description="By cause, since ever: of attempts that made nothing, less what is saved."
    )


class PoolsView(View):
    pools: list[PoolView]


class ProblemView(View):
    """RFC 9457. Every refusal looks like this."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    code: str = Field(description="The refusal; stable, for programs.")
    help: str = Field(description="What to do about it.")
    detail: str | None = None
    retry_after_seconds: int | None = None
