"""The declaration language: what a spec file may say, as validated, immutable classes.

Each class also takes the short forms that people write (`width: [16, 32]`, `seed: 3`) and turns them into
the long form. The same classes give the JSON schema that editors complete from (`spec.schema.json`).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeGuard, get_args

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

Scalar = bool | int | float | str | None
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Path = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*$")]

# What a task can say of a configuration, besides running it.
FACTS = ("n_params", "flops", "tokens", "bytes")

_SCALARS: JsonSchemaValue = {"type": ["number", "string", "boolean", "null"]}


class Strict(BaseModel):
    """A section whose unknown keys are errors and whose values are not converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Short(Strict):
    """A section with short forms: `lengthen` turns one into the long form, `short_schemas` describe them."""

    short_schemas: ClassVar[list[JsonSchemaValue]] = []

    @classmethod
    def lengthen(cls, value: Any) -> Any:
        """The long form of a short form; anything else as it is."""
        return value

    @model_validator(mode="before")
    @classmethod
    def _accept_short(cls, value: Any) -> Any:
        return cls.lengthen(value)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        own = handler.resolve_ref_schema(handler(core))
        long = dict(own)
        own.clear()
        own.update({"anyOf": [long, *cls.short_schemas]})
        for key in ("title", "description"):
            if key in long:
                own[key] = long.pop(key)
        return own


class Grid(Short):
    """Values of one axis: exactly one of `values`, `log2`, `log10`, `expr`. Short form: the list of values.

    >>> Grid.model_validate([16, 32]) == Grid(values=[16, 32])
    True
    """

    path: Path | None = Field(
        None,
        description="Dotted place in the configuration; default: the axis' own name. "
        "null: written nowhere, a name for expressions only.",
    )
    values: list[Any] | None = Field(None, description="The values, in order.")
    log2: list[float] | None = Field(
        None, description="[low, high] or [low, high, step]: powers of 2, both ends included."
    )
    log10: list[float] | None = Field(
        None, description="[low, high] or [low, high, step]: powers of 10, both ends included."
    )
    expr: str | None = Field(
        None, description="An expression over other axes: tied to them, it adds no factor to the product."
    )

    short_schemas: ClassVar[list[JsonSchemaValue]] = [{"type": "array", "items": _SCALARS, "minItems": 1}]

    @classmethod
    def lengthen(cls, value: Any) -> Any:
        return {"values": value} if isinstance(value, list) else value


class Alternatives(Short):
    """A comparison: a list of values at one path, or named bundles of settings.

    Short forms: the list of values; the mapping of label to settings, `{adam: {optim.name: adam}, …}`.
    """

    path: Path | None = Field(None, description="Dotted place of the values; default: the comparison's own name.")
    values: list[Any] | dict[str, dict[str, Any]] = Field(
        description="A list of values, or label -> settings (nested, or with dotted keys)."
    )

    short_schemas: ClassVar[list[JsonSchemaValue]] = [
        {"type": "array", "items": _SCALARS, "minItems": 1},
        {
            "type": "object",
            "additionalProperties": {"type": "object"},
            "minProperties": 1,
            "not": {"required": ["values"]},
        },
    ]

    @classmethod
    def lengthen(cls, value: Any) -> Any:
        if isinstance(value, list):
            return {"values": value}
        if isinstance(value, dict) and value and "values" not in value:
            bundles = all(isinstance(settings, dict) for settings in value.values())
            return {"values": value} if bundles else value
        return value


class Replicates(Short):
    """Repetitions that differ in a seed or the like. Short forms: `3` for 0, 1, 2; the list of values."""

    path: Path | None = Field(None, description="Dotted place of the values; default: the own name.")
    values: list[int] = Field(description="A list of integers, or a count n for 0 … n-1.")

    short_schemas: ClassVar[list[JsonSchemaValue]] = [
        {"type": "integer", "minimum": 1},
        {"type": "array", "items": {"type": "integer"}, "minItems": 1},
    ]
    most: ClassVar[int] = 10_000

    @classmethod
    def lengthen(cls, value: Any) -> Any:
        if isinstance(value, list) or _is_int(value):
            value = {"values": value}
        count = value.get("values") if isinstance(value, dict) else None
        if _is_int(count) and count <= cls.most:
            value = {**value, "values": list(range(count))}
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = super().__get_pydantic_json_schema__(core, handler)
        values = schema["anyOf"][0]["properties"]["values"]
        listed = {key: values.pop(key) for key in ("type", "items") if key in values}
        values["anyOf"] = [listed, {"type": "integer", "minimum": 1}]
        return schema


class Derived(Short):
    """A quantity computed from others. Short form: the expression.

    Without `path` the value is written where the configuration has a key of that name (`tokens` counts as
    such a key); otherwise it is a name for expressions and laws.
    """

    expr: str = Field(
        description="An expression over axes, configuration values (model.depth) and facts (n_params, flops)."
    )
    path: Path | None = Field(
        None, description="Where the value is written; null: nowhere, a name for expressions and laws only."
    )

    short_schemas: ClassVar[list[JsonSchemaValue]] = [{"type": "string"}]

    @classmethod
    def lengthen(cls, value: Any) -> Any:
        return {"expr": value} if isinstance(value, str) else value


class Solve(Short):
    """Fix a quantity: the value of `path` at which `equation` (`lhs == rhs`) holds. Short form: the equation.

    The difference of the two sides must be monotone in the value, between `low` and `high`.
    """

    equation: str = Field(description="`lhs == rhs`, such as flops == 1e15.")
    path: Path | None = Field(None, description="Where the value is written; default: the own name.")
    low: float = Field(1.0, gt=0, description="Smallest value to consider.")
    high: float = Field(1e18, gt=0, description="Largest value to consider.")
    integer: bool = Field(True, description="Whether the value is a whole number.")
    multiple: int = Field(1, ge=1, description="The value is a multiple of this, such as a head dimension.")
    tolerance: float = Field(0.01, gt=0, lt=1, description="Largest relative miss of the equation after rounding.")

    short_schemas: ClassVar[list[JsonSchemaValue]] = [{"type": "string"}]

    @classmethod
    def lengthen(cls, value: Any) -> Any:
        return {"equation": value} if isinstance(value, str) else value


# The objectives that have a constant: delta, degrees of freedom, the price of lying above.
CONSTANTS = ("huber", "student", "envelope")


class ObjectiveSpec(Short):
    """What a fit minimises. Short forms: the name, `l2`; the name with its constant, `{huber: 1e-3}`."""

    name: Literal["huber", "l2", "lad", "student", "envelope", "censored", "binomial"] = Field(
        "huber", description="The function of the residuals whose sum is minimised."
    )
    value: float | None = Field(
        None, gt=0, description="huber: delta; student: degrees of freedom; envelope: price of lying above."
    )

    short_schemas: ClassVar[list[JsonSchemaValue]] = [
        {"enum": ["huber", "l2", "lad", "student", "envelope", "censored", "binomial"]},
        {
            "type": "object",
            "properties": {name: {"type": "number"} for name in CONSTANTS},
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": False,
        },
    ]

    @classmethod
    def lengthen(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if isinstance(value, dict) and len(value) == 1 and not value.keys() & cls.model_fields.keys():
            ((name, constant),) = value.items()
            return {"name": name, "value": constant}
        return value


class LawSpec(Strict):
    """One law to fit."""

    law: str = Field(description="A registered law's name, such as power_offset, or a formula.")
    over: str | list[str] = Field(
        description="An axis, a derived name, or a fact such as n_params or flops; a list for several inputs."
    )
    of: str | None = Field(None, description="A metric, or `<tune>.optimum`; default: fit.of.")
    name: str | None = Field(None, description="A name for the fit in tables and figures.")
    where: str | None = Field(None, description="A condition that a cell must meet to enter this fit.")
    objective: ObjectiveSpec | None = Field(None, description="Default: huber, its delta chosen from the residuals.")
    residual: Literal["log", "linear", "logit"] = Field("log", description="What is compared: log y, y or logit y.")
    freeze: dict[Name, float] = Field({}, description="Parameters held at a value.")
    tie: dict[Name, Name] = Field({}, description="Parameters replaced by another: {beta: alpha}.")
    bounds: dict[Name, Annotated[list[float], Field(min_length=2, max_length=2)]] = Field(
        {}, description="Ranges of parameters: {E: [0, 3]}."
    )
    start: dict[Name, float] | None = Field(None, description="One more start of the search; names every parameter.")
    search: Literal["global", "start"] = Field("global", description="start: look only near `start`.")
    stderr: str | None = Field(None, description="A column of standard errors of the response.")
    trials: str | None = Field(None, description="A column with the number of trials behind a share.")
    censored: str | None = Field(None, description="A column that marks responses that are only a lower bound.")
    hold_out: dict[str, Any] | str | None = Field(
        None, description="Cells held out of this fit; default: fit.hold_out."
    )

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs of the law."""
        return (self.over,) if isinstance(self.over, str) else tuple(self.over)

    def title(self, of: str) -> str:
        """What the fit is called; `of` is the metric of the spec."""
        return self.name or f"{self.law}({self.of or of} over {', '.join(self.inputs)})"

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """`bounds` as pairs."""
        return {name: (low, high) for name, (low, high) in self.bounds.items()}


class FitSpec(Strict):
    """What is fitted to the results."""

    of: str = Field("val_loss", description="The metric that runs are judged by.")
    goal: Literal["min", "max"] = "min"
    select: Literal["last", "best"] = Field("last", description="Which logged value of a run stands for the run.")
    laws: list[LawSpec] = []
    hold_out: dict[str, Any] | str | None = Field(
        None,
        description="Cells to predict before they are scored: {axis: value or list}, or a predicate.",
    )
    cluster: str | None = Field(None, description="A column: rows that share a value of it are not independent.")
    cost: str | None = Field(None, description="An expression: what a cell costs, in FLOP.")
    isoflop: IsoflopSpec | None = Field(None, description="Profiles of equal compute; {} for the defaults.")
    level: float = Field(0.95, gt=0.5, lt=1, description="Coverage of the intervals.")
    bootstrap: int = Field(1000, ge=100, le=100_000, description="Bootstrap samples.")


class Column(Short):
    """Where a name's values stand in a table. Short form: the column's title."""

    column: str | None = Field(None, description="The column's title; default: the name.")
    unit: float | None = Field(None, gt=0, description="What one of the column's units is: 1e9 for billions.")

    short_schemas: ClassVar[list[JsonSchemaValue]] = [{"type": "string"}]

    @classmethod
    def lengthen(cls, value: Any) -> Any:
        return {"column": value} if isinstance(value, str) else value


Count = Literal["all", "no_embedding", "matrices_and_head"]


class Counts(Short):
    """Which parameters n_params counts. Short form: one word for all rows; else the words of a column."""

    all_rows: Count | None = Field(None, description="What n_params counts in every row.")
    column: str | None = Field(None, description="A column that says it row by row.")
    values: dict[str, Count] = Field({}, description="What the words of that column mean, where they are others.")

    short_schemas: ClassVar[list[JsonSchemaValue]] = [{"enum": list(get_args(Count))}]

    @classmethod
    def lengthen(cls, value: Any) -> Any:
        return {"all_rows": value} if isinstance(value, str) else value


class ResultsSpec(Strict):
    """A table of results that exists already: a CSV or Parquet file, or a query on a store."""

    path: str | None = Field(None, description="A CSV, TSV or Parquet file, relative to the spec file.")
    query: str | None = Field(None, description="A SELECT on the store at `store`, which it can't change.")
    store: str | None = Field(None, description="SQLAlchemy URL of the store of `query`; a file relative to the spec.")
    columns: dict[Name, Column] = Field({}, description="Names of the spec -> columns of the table.")
    where: list[str] = Field([], description="Conditions that a row must meet to be read.")
    run: str | None = Field(None, description="A column that names runs; rows that share it are checkpoints of one.")
    diverged: str | None = Field(None, description="A column that is true where a run diverged.")
    schedule: str | None = Field(
        None, description="A condition that holds where a learning-rate schedule was at its end; other rows stay out."
    )
    missing: list[str] = Field([], description="Words that stand for a missing number, such as NA.")
    counts: Counts | None = Field(None, description="Which parameters n_params counts.")

    @model_validator(mode="before")
    @classmethod
    def _accept_short(cls, value: Any) -> Any:
        return lengthen_results(value)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core))
        for key in ("where", "missing"):
            _also(schema["properties"][key], {"type": "string"})
        schema["oneOf"] = [{"required": ["path"]}, {"required": ["query"]}]
        return schema


class IsoflopSpec(Strict):
    """Profiles of equal compute: the best split of each budget, and how it grows."""

    n: str = Field("n_params", description="The size that is chosen at each budget.")
    tokens: str = Field("tokens", description="The data that the rest of the budget buys.")
    budget: str = Field("flops", description="What rows are grouped by.")
    degree: Literal[2, 3] = Field(3, description="Of the polynomial in log n through log loss.")
    within: float = Field(0.05, gt=0, lt=1, description="Largest relative distance of a row's budget from its group's.")


class LocalLauncher(Strict):
    """Worker processes on this machine."""

    kind: Literal["local"] = "local"
    workers: Literal["auto"] | Annotated[int, Field(ge=1)] = Field("auto", description="Worker processes.")
    threads: Literal["auto"] | Annotated[int, Field(ge=1)] = Field("auto", description="Threads per worker.")
    checkpoint_seconds: float = Field(30.0, gt=0, description="Seconds between two checkpoints of a run.")


class Spec(Strict):
    """A sweep: which scales to try, and which law the results should follow."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$")] = Field(
        description="The sweep's name in the store."
    )
    task: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")] | None = Field(
        None, description="What is run: an importable train(config, run), as module:function."
    )
    results: ResultsSpec | None = Field(None, description="Instead of `task`: a table that exists. Nothing is run.")
    question: str | None = Field(None, description="What the sweep is to answer, in a sentence.")
    base: dict[str, Any] = Field({}, description="What all cells share; ${model.width} refers to a value.")
    axes: dict[Name, Grid] = Field({}, description="Scaling axes: the x of a law.")
    compare: dict[Name, Alternatives] = Field({}, description="Alternatives: one law for each.")
    tune: dict[Name, Grid] = Field({}, description="Hyperparameters, reduced to their optimum at every scale.")
    replicates: dict[Name, Replicates] = Field({}, description="Seeds: reduced to a mean and its error.")
    zip: list[list[Name]] = Field([], description="Axes that go together instead of multiplying.")
    derive: dict[Name, Derived] = Field({}, description="Quantities computed from others.")
    solve: dict[Name, Solve] = Field({}, description="Quantities fixed by an equation.")
    where: list[str] = Field([], description="Conditions that every cell must meet.")
    fit: FitSpec | None = Field(None, description="What is fitted to the results.")
    predict: list[dict[str, Any]] = Field([], description="Cells to predict without running them.")
    launcher: LocalLauncher = Field(LocalLauncher(), description="How the runs are started.")

    @model_validator(mode="before")
    @classmethod
    def _accept_short(cls, value: Any) -> Any:
        return lengthen_spec(value)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core))
        fields = schema["properties"]
        _also(fields["where"], {"type": "string"})
        _also(fields["zip"], {"type": "array", "items": {"type": "string"}, "minItems": 2})
        _also(fields["predict"], {"type": "object"})
        for section in SECTIONS:
            _also(fields[section], {"type": "null"})
        for role in ROLES:
            _also(fields[role], {"type": "array", "items": {"type": "string"}})
        schema["oneOf"] = [_of_task(), _of_table()]
        return schema


# The sections that map names to entries, and the class of an entry.
ENTRIES: dict[str, type[Short]] = {
    "axes": Grid,
    "compare": Alternatives,
    "tune": Grid,
    "replicates": Replicates,
    "derive": Derived,
    "solve": Solve,
}
# The sections that may be left empty (`tune:` with all its entries commented out).
SECTIONS = ("base", *ENTRIES, "zip", "where", "predict", "fit", "launcher")
ROLES = ("axes", "compare", "tune", "replicates")


# The long form of an entry whose values are a column of the table of results.
COLUMN_ENTRY: dict[str, dict[str, Any]] = {
    "axes": {}, "compare": {"values": []}, "tune": {}, "replicates": {"values": []},
}  # fmt: skip


def lengthen_spec(value: Any) -> Any:
    """A spec's data with the short forms of its sections and entries written out; idempotent."""
    if not isinstance(value, dict):
        return value
    data = {key: item for key, item in value.items() if not (item is None and key in SECTIONS)}
    if "results" in data:
        data["results"] = lengthen_results(data["results"])
        for role in ROLES:
            if isinstance(names := data.get(role), list) and all(isinstance(name, str) for name in names):
                data[role] = {name: dict(COLUMN_ENTRY[role]) for name in names}
    if isinstance(where := data.get("where"), str):
        data["where"] = [where]
    if isinstance(tied := data.get("zip"), list) and tied and all(isinstance(name, str) for name in tied):
        data["zip"] = [tied]
    if isinstance(predict := data.get("predict"), dict):
        data["predict"] = [predict]
    for section, entry in ENTRIES.items():
        if isinstance(entries := data.get(section), dict):
            data[section] = {name: entry.lengthen(item) for name, item in entries.items()}
    return data


def lengthen_results(value: Any) -> Any:
    """The data of `results` with its short forms written out; idempotent."""
    if not isinstance(value, dict):
        return value
    data = {key: item for key, item in value.items() if not (item is None and key in ("columns", "where", "missing"))}
    for key in ("where", "missing"):
        if isinstance(data.get(key), str):
            data[key] = [data[key]]
    if isinstance(columns := data.get("columns"), dict):
        data["columns"] = {name: Column.lengthen(item) for name, item in columns.items()}
    if "counts" in data:
        data["counts"] = Counts.lengthen(data["counts"])
    return data


def _of_task() -> JsonSchemaValue:
    """A spec that runs something: its entries have values."""
    entries = {role: {"type": ["object", "null"]} for role in ROLES}
    return {"required": ["task"], "not": {"required": ["results"]}, "properties": entries}


def _of_table() -> JsonSchemaValue:
    """A spec over a table: its entries are names of columns."""
    entries = {role: {"type": ["array", "null"]} for role in ROLES}
    return {"required": ["results"], "not": {"required": ["task"]}, "properties": entries}


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _also(field: JsonSchemaValue, short: JsonSchemaValue) -> None:
    """Makes a field's JSON schema take `short` as well."""
    kept: JsonSchemaValue = {key: field.pop(key) for key in ("title", "description", "default") if key in field}
    choices = field.pop("anyOf", None) or [dict(field)]
    field.clear()
    field.update({**kept, "anyOf": choices if short in choices else [*choices, short]})
