"""What a project wants of the rules: which are asked, how grave they are, where their thresholds lie.

    [tool.torchdoctor]
    select = ["data", "T", "learning-rate-too-high"]    # names, codes, the beginnings of codes, families; default: all
    ignore = ["overfitting"]
    fail-on = "warning"
    capture = ["nonfinite", "spike"]                    # or "none"; with capture-limit = "2GB", keep-captures = 5
    on-nonfinite = "skip"                               # or "report", "halt", "rollback" with rollback-limit = "2GB"

    [tool.torchdoctor.severity]
    clipping-too-tight = "info"

    [tool.torchdoctor.thresholds.dead-relu]
    least = 0.7                                         # the constant LEAST of the rule's file

Read and checked before a script starts, so nothing here imports numpy: rules are read as source.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from torchdoctor.errors import UnknownNameError, UsageError
from torchdoctor.findings import Severity

RULES = Path(__file__).parent / "rules"
CONSTANT = re.compile(r"[A-Z][A-Z0-9_]*")
FILE, SECTION = "pyproject.toml", "torchdoctor"
CAPTURE_KEYS = ("capture", "capture-limit", "keep-captures")
REMEDY_KEYS = ("on-nonfinite", "rollback-limit")
KEYS = ("select", "ignore", "fail-on", *CAPTURE_KEYS, *REMEDY_KEYS, "severity", "thresholds")
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)


@dataclass(frozen=True)
class KnownRule:
    """A rule as its source shows it."""

    name: str
    code: str
    family: str
    constants: Mapping[str, float]
    """Its module's own named numbers: the thresholds that can be set."""


@dataclass(frozen=True)
class CaptureWishes:
    """What is written to disk when a step goes wrong; None leaves it to the defaults of attach.options."""

    on: tuple[str, ...] | None = None
    limit_bytes: int | None = None
    keep: int | None = None

    def over(
        self, on: str | Iterable[str] | None, limit: int | str | None, keep: int | None, option: str = "capture_limit"
    ) -> dict[str, Any]:
        """The options that these wishes and, over them, those of a call or a command line come to."""
        wishes = {
            "capture": self.on if on is None else read_triggers(on),
            "capture_bytes": self.limit_bytes if limit is None else read_size(limit, option),
            "keep_captures": self.keep if keep is None else keep,
        }
        return {name: value for name, value in wishes.items() if value is not None}


@dataclass(frozen=True)
class RemedyWishes:
    """What is done about values that are not finite; None leaves it to the defaults of attach.options."""

    on_nonfinite: str | None = None
    limit_bytes: int | None = None

    def over(self, mode: str | None, limit: int | str | None, option: str = "rollback_limit") -> dict[str, Any]:
        """The options that these wishes and, over them, those of a call or a command line come to."""
        wishes = {
            "on_nonfinite": self.on_nonfinite if mode is None else mode,
            "rollback_bytes": self.limit_bytes if limit is None else read_size(limit, option),
        }
        return {name: value for name, value in wishes.items() if value is not None}


@dataclass(frozen=True)
class Settings:
    """Checked wishes; the defaults leave everything as it is. Plain data, so that it can travel to child processes."""

    select: tuple[str, ...] = ()
    """names of the rules to ask; none: all"""
    ignore: tuple[str, ...] = ()
    severity: Mapping[str, str] = field(default_factory=dict)
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    fail_on: str | None = None
    captures: CaptureWishes = CaptureWishes()
    remedy: RemedyWishes = RemedyWishes()
    folders: tuple[str, ...] = ()
    """where the user's own source lies: lines there may allow a finding"""

    def wants(self, name: str) -> bool:
        return (not self.select or name in self.select) and name not in self.ignore

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Settings:
        lists = {k: tuple(data.get(k, ())) for k in ("select", "ignore", "folders")}
        captures = CaptureWishes(**data.get("captures", {}))
        remedy = RemedyWishes(**data.get("remedy", {}))
        return cls(**{**data, **lists, "captures": captures, "remedy": remedy})

    def updated(
        self,
        *,
        select: Iterable[str] = (),
        ignore: Iterable[str] = (),
        severity: Iterable[str] = (),
        thresholds: Iterable[str] = (),
    ) -> Settings:
        """With what the command line says: names replace the file's; severities and thresholds add to them.

        A severity is written NAME=info, a threshold NAME.CONSTANT=0.7.
        """
        chosen, left_out = read_selectors(select, "--select"), read_selectors(ignore, "--ignore")
        graded = dict(self.severity) | dict(_read_grade(text) for text in severity)
        bounds = {name: dict(values) for name, values in self.thresholds.items()}
        for text in thresholds:
            name, constant, value = _read_bound(text)
            bounds.setdefault(name, {})[constant] = value
        return replace(
            self,
            select=chosen or self.select,
            ignore=left_out or self.ignore,
            severity=graded,
            thresholds=bounds,
        )


@cache
def known_rules() -> dict[str, KnownRule]:
    """Every rule by name, read from its source."""
    found: dict[str, KnownRule] = {}
    for file in sorted(RULES.glob("*/*.py")):
        module = ast.parse(file.read_text(encoding="utf-8"))
        for call in ast.walk(module):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Rule":
                said = {k.arg: k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)}
                if isinstance(said.get("name"), str):
                    code = str(said.get("code", ""))
                    found[said["name"]] = KnownRule(said["name"], code, file.parent.name, constants_of(module))
    return found


def constants_of(module: ast.Module) -> dict[str, float]:
    """Numbers that the module gives an upper-case name at its top level."""
    found: dict[str, float] = {}
    for statement in module.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target, value = statement.target, statement.value
        else:
            continue
        try:
            number = ast.literal_eval(value)
        except ValueError:
            continue
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if is_number and isinstance(target, ast.Name) and CONSTANT.fullmatch(target.id):
            found[target.id] = number
    return found


def read(path: Path) -> Settings:
    """The settings in a TOML file; UsageError says what is wrong with them. A file without the section has none."""
    section = _load(path).get("tool", {}).get(SECTION, {})
    if not isinstance(section, dict):
        raise UsageError(f"{path}: [tool.{SECTION}] must be a table")
    section = {str(key).replace("_", "-"): value for key, value in section.items()}
    for key in section:
        if key not in KEYS:
            there = f"; there are {', '.join(KEYS[:-1])} and {KEYS[-1]}"
            raise UnknownNameError(f"{path}: [tool.{SECTION}] has no setting {key!r}{_meant(key, KEYS)}{there}")
    where = f"{path}: "
    settings = Settings(
        select=read_selectors(_strings(section, "select", where), f"{where}select"),
        ignore=read_selectors(_strings(section, "ignore", where), f"{where}ignore"),
        severity={
            find_name(name, f"{where}severity"): read_severity(grade, f"{where}severity of {name}")
            for name, grade in _table(section, "severity", where).items()
        },
        thresholds={
            find_name(name, f"{where}thresholds"): _bounds(name, values, where)
            for name, values in _table(section, "thresholds", where).items()
        },
    )
    settings = replace(settings, captures=_captures(section, where), remedy=_remedy(section, where))
    fail_on = section.get("fail-on")
    return replace(settings, fail_on=read_severity(fail_on, f"{where}fail-on")) if fail_on is not None else settings


def discover(folder: Path) -> Settings:
    """The settings of the nearest pyproject.toml, here or above, that has any."""
    for place in (folder, *folder.parents):
        path = place / FILE
        try:
            if path.is_file() and f"tool.{SECTION}" in path.read_text(encoding="utf-8", errors="replace"):
                return read(path)
        except OSError:
            continue
    return Settings()


def find_name(name: str, where: str) -> str:
    """A diagnosis by its name or code; UnknownNameError with close names."""
    wanted = str(name).strip().lower().replace("_", "-")
    rules = known_rules()
    found = wanted if wanted in rules else next((r.name for r in rules.values() if r.code.lower() == wanted), None)
    if found is None:
        close = _meant(wanted, rules) or "; torchdoctor explain lists them all"
        raise UnknownNameError(f"{where}: there is no diagnosis {name!r}{close}")
    return found


def read_selectors(given: Iterable[str], where: str) -> tuple[str, ...]:
    """Names of rules from names, codes, beginnings of codes and families; several may be joined by commas."""
    chosen: list[str] = []
    for word in (w.strip() for text in given for w in text.split(",")):
        if word:
            chosen += _select(word, where)
    return tuple(dict.fromkeys(chosen))


def read_severity(text: object, where: str) -> str:
    try:
        return Severity(str(text).lower()).value
    except ValueError:
        raise UsageError(f"{where}: a severity is error, warning or info, not {text!r}") from None


def read_triggers(given: str | Iterable[str]) -> tuple[str, ...]:
    """On what captures are taken; "none" is nothing. Whether there is such a word, the options check."""
    words = [w.strip().lower() for text in ([given] if isinstance(given, str) else given) for w in text.split(",")]
    if "none" in words and len(words) > 1:
        raise UsageError("capture: none stands alone")
    return tuple(dict.fromkeys(w for w in words if w and w != "none"))


def read_size(given: object, where: str) -> int:
    """Bytes, from a number or from 500MB, 2GB, 1.5GiB."""
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    match = SIZE.fullmatch(str(given).strip())
    if match is None:
        raise UsageError(f"{where}: a size is written 500MB or 2GB, not {given!r}")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** " kmgt".index(match[2].lower() or " "))


def _captures(section: Mapping[str, Any], where: str) -> CaptureWishes:
    limit, keep = section.get("capture-limit"), section.get("keep-captures")
    if keep is not None and (isinstance(keep, bool) or not isinstance(keep, int) or keep < 1):
        raise UsageError(f"{where}keep-captures is a number from 1 on, not {keep!r}")
    return CaptureWishes(
        on=read_triggers(_strings(section, "capture", where)) if "capture" in section else None,
        limit_bytes=read_size(limit, f"{where}capture-limit") if limit is not None else None,
        keep=keep,
    )


def _remedy(section: Mapping[str, Any], where: str) -> RemedyWishes:
    mode, limit = section.get("on-nonfinite"), section.get("rollback-limit")
    if mode is not None and not isinstance(mode, str):
        raise UsageError(f"{where}on-nonfinite is one word, not {mode!r}")
    return RemedyWishes(mode, read_size(limit, f"{where}rollback-limit") if limit is not None else None)


def _select(word: str, where: str) -> list[str]:
    rules = known_rules().values()
    family = [r.name for r in rules if r.family == word.lower()]
    begins = [r.name for r in rules if re.fullmatch(r"[A-Za-z]\d{0,3}", word) and r.code.startswith(word.upper())]
    return family or begins or [find_name(word, where)]


def _read_grade(text: str) -> tuple[str, str]:
    name, sign, grade = text.partition("=")
    if not sign:
        raise UsageError(f"--severity: write NAME=error, NAME=warning or NAME=info, not {text!r}")
    return find_name(name, "--severity"), read_severity(grade.strip(), f"--severity of {name}")


def _read_bound(text: str) -> tuple[str, str, float]:
    left, sign, value = text.partition("=")
    name, dot, constant = left.rpartition(".")
    if not (sign and dot):
        raise UsageError(f"--threshold: write NAME.CONSTANT=NUMBER, such as dead-relu.least=0.7, not {text!r}")
    found = find_name(name, "--threshold")
    try:
        number = float(value)
    except ValueError:
        raise UsageError(f"--threshold: {left.strip()} is a number, not {value.strip()!r}") from None
    return found, find_constant(found, constant, "--threshold"), number


def find_constant(rule: str, name: object, where: str) -> str:
    constants = known_rules()[rule].constants
    wanted = str(name).strip().upper().replace("-", "_")
    if wanted in constants:
        return wanted
    known = ", ".join(f"{c.lower()} ({v:g})" for c, v in constants.items()) or "none"
    raise UnknownNameError(f"{where}: {rule} has no threshold {name!r}; it has: {known}")


def _bounds(name: str, values: object, where: str) -> dict[str, float]:
    rule = find_name(name, f"{where}thresholds")
    if not isinstance(values, dict):
        raise UsageError(f"{where}thresholds.{name} must be a table such as {{ least = 0.7 }}, not {values!r}")
    found = {}
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(f"{where}thresholds.{name}.{key} is a number, not {value!r}")
        found[find_constant(rule, key, f"{where}thresholds.{name}")] = value
    return found


def _strings(section: Mapping[str, Any], key: str, where: str) -> list[str]:
    value = section.get(key, [])
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise UsageError(f"{where}{key} is a list of names, not {value!r}")
    return value


def _table(section: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = section.get(key, {})
    if not isinstance(value, dict):
        raise UsageError(f"{where}{key} is a table, not {value!r}")
    return value


def _meant(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _load(path: Path) -> dict[str, Any]:
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        import tomli as tomllib  # type: ignore[no-redef]

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
