"""What a command line starts: through wrappers, shells, scripts and shebangs to the program that stays."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from imgdiff.kinds import shell
from imgdiff.model import (
    HOLE,
    HOLE_FILE,
    Attribution,
    Computed,
    Environment,
    FactSource,
    ImageConfig,
    ShellFacts,
    Tree,
    Unreadable,
)
from imgdiff.starting import DEFAULT_PATH
from imgdiff.trace.launch.computed import candidates, sentence
from imgdiff.trace.launch.directories import surely_entered
from imgdiff.trace.launch.places import at_homes, own_place
from imgdiff.trace.launch.runners import RUNNERS, chosen, commands, directories, inside
from imgdiff.trace.launch.sourced import SetBy, Shell, Touched
from imgdiff.trace.launch.startup import read_at_start

__all__ = [
    "Follower",
    "Launch",
    "PythonStart",
    "SetBy",
    "Touched",
    "environment_of",
    "python_names",
    "split_entry",
]

_MAX_VARIANTS = 6  # parts of a path that a script may or may not set, each tried alone
_MAX_DEPTH = 16  # of scripts that start scripts
_SHELLS = frozenset({b"sh", b"bash", b"dash", b"ash", b"zsh", b"ksh", b"busybox"})
_PYTHON = re.compile(rb"(?:python|pypy)(?:\d+(?:\.\d+)*)?t?")
_WRAPPERS = frozenset(
    b"tini tini-static dumb-init catatonit docker-init env numactl taskset nice ionice chrt stdbuf timeout setpriv "
    b"setsid gosu su-exec sudo runuser nohup time catchsegv unshare capsh strace ltrace gdb valgrind perf nsys ncu "
    b"vtune mpirun mpiexec xvfb-run flock prlimit eatmydata s6-setuidgid "
    b"linux32 linux64 setarch arch xargs busybox".split()
)
_LOGIN = frozenset({"-", "-l", "-i", "--login"})  # of su, sudo, runuser
_STARTS = frozenset({"-x", "--exec", "-a", "--startas"})
_SPLIT = re.compile(r"-[0iv]*S(.*)|--split-string(?:=(.*))?", re.DOTALL)
_SHELL_WORDS = frozenset({"exec", "command", "builtin", "nohup", "time", "then", "do", "else", "!", "{", "("})
_VALUED = frozenset("WX")  # interpreter options that take a value
Mode = Literal["module", "script", "code", "stdin"]


class PythonStart(msgspec.Struct, frozen=True):
    """An interpreter that is started: which environment, with which options, and what it runs."""

    invoked: bytes  # the path under which it was found, not canonical
    environment: Environment | None
    flags: frozenset[str]
    mode: Mode
    target: str  # module name, path of the script in the tree, or code
    arguments: tuple[str, ...]


class Launch(msgspec.Struct, frozen=True):
    """What a command line comes to. ``program`` is the canonical path of the last program, if it is in the image.
    ``set_by`` is what shell code on the way adds to the image's ENV, ``open`` says where only a run tells what shell
    code starts."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: bytes
    touched: tuple[Touched, ...] = ()
    python: PythonStart | None = None
    program: bytes | None = None
    in_shell: bool = False
    caveats: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()  # strings of the shell code on the way
    set_by: tuple[SetBy, ...] = ()
    open: tuple[str, ...] = ()

    def unsure(self, name: str) -> frozenset[str]:
        """Return the parts of a path list that shell code may or may not put there."""
        sure = {each.part for each in self.set_by if each.name == name and each.sure}
        return frozenset(each.part for each in self.set_by if each.name == name) - sure


def environment_of(config: ImageConfig | None) -> dict[str, str]:
    """Return the ENV of an image as a mapping; the last of two equal names wins."""
    env: dict[str, str] = {}
    for line in config.env if config is not None else ():
        name, _, value = line.partition("=")
        env[name] = value
    return env


class Follower:
    """Follows command lines in one image."""

    def __init__(self, tree: Tree, attribution: Attribution, facts: FactSource) -> None:
        self.tree, self.attribution, self.facts = tree, attribution, facts

    # Finding programs -----------------------------------------------------------------------------------------------

    def which(self, name: str, env: Mapping[str, str], cwd: bytes) -> bytes | None:
        """Return the path (links not followed) under which a program is found, or None."""
        if not name or HOLE in name or "\n" in name:
            return None
        encoded = name.encode("utf-8", "surrogateescape")
        if b"/" in encoded:
            while encoded.startswith(b"./"):
                encoded = encoded[2:]
            candidates = [encoded]
        else:
            directories = env.get("PATH", DEFAULT_PATH).split(":")
            candidates = [directory.encode("utf-8", "surrogateescape") + b"/" + encoded for directory in directories]
        for candidate in candidates:
            full = candidate.strip(b"/") if candidate.startswith(b"/") else (cwd + b"/" + candidate).strip(b"/")
            entry = self.tree.lookup(full)
            if entry is not None and entry.type == "file" and entry.mode & 0o111:
                return full
        return None

    def environment(self, invoked: bytes) -> Environment | None:
        """Return the environment of an interpreter by the name under which it is started: ``pyvenv.cfg`` beside or
        above that name decides (PEP 405). CPython follows no link to it (Modules/getpath.py): a link to a virtual
        environment's interpreter, or to its ``bin``, starts the interpreter below."""
        environments = self.attribution.environments
        prefix = self.tree.resolve(invoked.rpartition(b"/")[0].rpartition(b"/")[0])
        for environment in environments:
            if environment.prefix == prefix and environment.prefix != environment.base:
                return environment
        binary = self.tree.resolve(invoked)
        exact = [each for each in environments if each.executable == binary and each.prefix == each.base]
        if exact:
            return exact[0]
        above = self._above(binary or invoked)
        if above is not None:
            return above
        version = re.search(rb"(\d+\.\d+)", (binary or invoked).rpartition(b"/")[2])
        same = [each for each in environments if version and each.version == version[1].decode()]
        return next(iter(same or environments), None)

    def _above(self, binary: bytes) -> Environment | None:
        """The environment of a copy of an interpreter: it looks for its standard library in ``lib`` of the directory
        above its own, and so on upwards (CPython's Modules/getpath.py)."""
        found = re.search(rb"(\d+\.\d+)", binary.rpartition(b"/")[2])
        directory = binary.rpartition(b"/")[0]
        while directory:
            directory = directory.rpartition(b"/")[0]
            here = [each for each in self.attribution.environments if each.prefix == each.base == directory]
            fitting = [each for each in here if found is None or each.version == found[1].decode()]
            if fitting:
                return fitting[0]
        return None

    # Following ------------------------------------------------------------------------------------------------------

    def follow(self, argv: Sequence[str], env: Mapping[str, str], cwd: bytes, depth: int = 0) -> list[Launch]:
        """Return what a command line can come to; empty if its program is not in the image."""
        env = dict(env)
        argv = list(argv)
        while argv and re.fullmatch(r"[A-Za-z_]\w*=[^\x00]*", argv[0]):
            name, _, value = argv.pop(0).partition("=")
            env[name] = value
        while argv and argv[0] in _SHELL_WORDS:
            argv.pop(0)
            while argv and argv[0] in ("-a", "-c", "-l"):
                argv = argv[2 if argv[0] == "-a" else 1 :]
        if not argv or depth > _MAX_DEPTH:
            return []
        found = self.which(argv[0], env, cwd)
        if found is None:
            return []
        path = self.tree.resolve(found)
        assert path is not None
        first = Touched(path, "root", sure=True)
        base = Launch(tuple(argv), env, cwd, (first,), program=path)
        names = {found.rpartition(b"/")[2], path.rpartition(b"/")[2]}
        if self.facts.elf(path) is not None:
            return self._binary(base, found, names, depth)
        return self._script(base, path, depth)

    def _binary(self, base: Launch, found: bytes, names: set[bytes], depth: int) -> list[Launch]:
        argv = list(base.argv)
        if names & _SHELLS and not (b"busybox" in names and found.rpartition(b"/")[2] == b"busybox"):
            return self._shell(base, argv[1:], depth)
        if any(_PYTHON.fullmatch(name) for name in names):
            start = self._python(found, argv[1:])
            return [msgspec.structs.replace(base, python=start), *self._handed(base, start, depth)]
        if names & RUNNERS:
            return self._run_inside(base, argv[1:], depth) or [base]
        behind = self._wrapped(base, argv[1:], depth)
        if names & _WRAPPERS:
            return behind or [base]
        return [base, *behind]  # it may be one that no list knows

    def _handed(self, base: Launch, start: PythonStart, depth: int) -> list[Launch]:
        """What a Python program can start that its arguments name: ``opentelemetry-instrument python app.py``."""
        if start.target.rpartition("/")[2].encode("utf-8", "surrogateescape") in RUNNERS:
            return self._run_inside(base, start.arguments, depth)
        for index, word in enumerate(start.arguments):
            if word.startswith("-") or HOLE in word:
                continue
            rest = list(start.arguments[index:])
            if self.which(word, base.env, base.cwd) is None:
                script = self.tree.resolve(word.encode("utf-8", "surrogateescape"), base.cwd)
                entry = None if script is None or not word.endswith(".py") else self.tree.get(script)
                if entry is None or entry.type != "file":
                    continue
                rest = ["/" + start.invoked.decode("utf-8", "surrogateescape"), *rest]
            return self._behind(base, rest, base.env, depth, sure=False)
        return []

    def _wrapped(self, base: Launch, rest: list[str], depth: int) -> list[Launch]:
        """Behind a wrapper: the first argument that is a program, or shell code behind ``-c`` (``su``, ``flock``). A
        directory before it can be where that runs (``env -C``, ``unshare --wd``, ``mpirun -wdir``)."""
        env = dict(base.env)
        places = {base.cwd: None}
        position = rest.index("--") + 1 if "--" in rest else 0
        for index, word in enumerate(rest):
            split = _SPLIT.fullmatch(word)
            if re.fullmatch(r"[A-Za-z_]\w*=.*", word, re.DOTALL):
                name, _, value = word.partition("=")
                env[name] = value
            elif split is not None and (split[1] or split[2] or index + 1 < len(rest)):
                joined = split[1] or split[2]
                words = _words(joined or rest[index + 1])  # of a shebang all are split already
                words = [_expanded(each, env, self.tree) for each in (*words, *rest[index + (1 if joined else 2) :])]
                return self._in_each(base, places, env, words, depth, wrapped=True)
            elif (code := _code(word, rest[index + 1 :])) is not None:
                login = not _LOGIN.isdisjoint(rest)
                command = ["sh", *(["-l"] if login else []), "-c", code]
                found = self._in_each(base, [*places, *(self._homes(base) if login else ())], env, command, depth)
                if any(len(each.touched) > len(base.touched) + 1 for each in found):  # more than the shell
                    return found
            elif index < position and (program := _started(rest, index)) and self.which(program, env, base.cwd):
                return self._in_each(base, places, env, [program, *rest[position:]], depth)
            elif (
                index >= position
                and not word.startswith("-")
                and any(self.which(word, env, place) is not None for place in places)
            ):
                homes = () if _LOGIN.isdisjoint(rest[:index]) else self._homes(base)
                return self._in_each(base, [*places, *homes], env, rest[index:], depth)
            else:
                directory = self._directory(word, base.cwd)
                if directory is not None and len(places) < _MAX_VARIANTS:
                    places[directory] = None
        return []

    def _homes(self, base: Launch) -> list[bytes]:
        """Return where a login shell can begin (``su -``, ``sudo -i``)."""
        names = at_homes("~", base.env, self.tree) + at_homes("~", {}, self.tree)
        found = (self.tree.resolve(name.encode("utf-8", "surrogateescape")) for name in dict.fromkeys(names))
        return [each for each in found if each is not None][:_MAX_VARIANTS]

    def _directory(self, word: str, cwd: bytes) -> bytes | None:
        """Return the directory that a word of a wrapper names: ``DIR``, ``-CDIR``, ``--chdir=DIR``."""
        value = word
        if word.startswith("--"):
            value = word.partition("=")[2]
        elif word.startswith("-"):
            value = word[2:]
        path = self.tree.resolve(value.encode("utf-8", "surrogateescape"), cwd) if value and HOLE not in value else None
        return path if path is not None and self.tree.is_dir(path) else None

    def _in_each(
        self,
        base: Launch,
        places: Iterable[bytes],
        env: Mapping[str, str],
        argv: list[str],
        depth: int,
        *,
        wrapped: bool = False,
    ) -> list[Launch]:
        """Return what a command comes to in each directory that it can run in. ``wrapped``: it is a wrapper's words."""
        found: list[Launch] = []
        for place in dict.fromkeys(places):
            here = msgspec.structs.replace(base, env=env, cwd=place)
            launches = self._wrapped(here, argv, depth) if wrapped else self._behind(here, argv, env, depth)
            found += [each for each in launches if each not in found]
        return found

    def _behind(
        self, base: Launch, argv: Sequence[str], env: Mapping[str, str], depth: int, sure: bool = True
    ) -> list[Launch]:
        return [self._joined(base, each, sure) for each in self.follow(argv, env, base.cwd, depth + 1)]

    def _joined(self, base: Launch, inner: Launch, sure: bool) -> Launch:
        by = base.touched[0].path
        touched = [
            msgspec.structs.replace(
                each,
                sure=each.sure and sure,
                by=by if each.by is None else each.by,
                edge="program" if each.edge == "root" else each.edge,
            )
            for each in inner.touched
        ]
        return msgspec.structs.replace(
            inner,
            touched=(*base.touched, *touched),
            in_shell=base.in_shell or inner.in_shell,
            caveats=(*base.caveats, *inner.caveats),
            texts=(*base.texts, *inner.texts),
            set_by=tuple(dict.fromkeys((*base.set_by, *inner.set_by))),
            open=tuple(dict.fromkeys((*base.open, *inner.open))),
        )

    def _run_inside(self, base: Launch, words: Sequence[str], depth: int) -> list[Launch]:
        """What a runner starts (``uv run``), in each environment that it can mean: the first word that is a program."""
        named = (each.encode("utf-8", "surrogateescape") for each in directories(words))
        places = [base.cwd, *(self.tree.resolve(each, base.cwd) for each in named)]
        launches: list[Launch] = []
        for prefix in (None, *chosen(words, self.attribution.environments)):
            env = base.env if prefix is None else inside(base.env, prefix)
            for cwd in (each for each in dict.fromkeys(places) if each is not None):
                here = msgspec.structs.replace(base, cwd=cwd)
                found = (self._behind(here, argv, env, depth, sure=False) for argv in commands(words))
                launches += [each for each in next(filter(None, found), []) if each not in launches]
        return launches

    def _python(self, invoked: bytes, rest: list[str]) -> PythonStart:
        flags: set[str] = set()
        environment = self.environment(invoked)
        index = 0
        while index < len(rest):
            word = rest[index]
            if word.startswith("--"):
                index += 2 if word == "--check-hash-based-pycs" else 1
                continue
            if not word.startswith("-") or word == "-":
                break
            for position, letter in enumerate(word[1:], 2):
                if letter in "mc":
                    value = word[position:] or (rest[index + 1] if index + 1 < len(rest) else HOLE)  # as in -c $CODE
                    following = rest[index + (1 if word[position:] else 2) :]
                    mode: Mode = "module" if letter == "m" else "code"
                    return PythonStart(invoked, environment, frozenset(flags), mode, value, tuple(following))
                if letter in _VALUED:
                    index += 0 if word[position:] else 1
                    break
                flags.add(letter)
            index += 1
        if index >= len(rest) or rest[index] == "-":
            return PythonStart(invoked, environment, frozenset(flags), "stdin", "", tuple(rest[index + 1 :]))
        return PythonStart(invoked, environment, frozenset(flags), "script", rest[index], tuple(rest[index + 1 :]))

    def _script(self, base: Launch, path: bytes, depth: int) -> list[Launch]:
        """A script: its shebang says who runs it."""
        text = self.facts.text(path)
        head = (text or b"")[:512].partition(b"\n")[0]
        rest = list(base.argv[1:])
        if not head.startswith(b"#!"):
            if text is None:
                return [base]
            return self._run_shell(base, path, rest, depth)  # as a shell does with a file that has no shebang
        try:
            words = shlex.split(head[2:].decode("utf-8", "surrogateescape"))
        except ValueError:
            words = head[2:].decode("utf-8", "surrogateescape").split()
        absolute = "/" + path.decode("utf-8", "surrogateescape")
        if (
            words
            and words[0].rpartition("/")[2] == "sh"
            and b"exec" in (text or b"")[:512]
            and b"'''" in (text or b"")[:512]
        ):
            # pip's trick for long shebangs: '''exec' /long/path/python "$0" "$@"
            match = re.search(rb"^'''exec' (\S+|\"[^\"]+\")", text or b"", re.MULTILINE)
            if match is not None:
                words = [match[1].strip(b'"').decode("utf-8", "surrogateescape")]
        launches = [
            self._interpreted(base, each)
            for each in self.follow([*words, absolute, *rest], base.env, base.cwd, depth + 1)
        ]
        return launches or [base]

    def _interpreted(self, base: Launch, inner: Launch) -> Launch:
        joined = self._joined(base, inner, sure=True)
        script = base.touched[0].path
        touched = tuple(
            msgspec.structs.replace(each, edge="interpreter") if each.by == script and each.edge == "program" else each
            for each in joined.touched
        )
        return msgspec.structs.replace(joined, touched=touched)

    # Shells ---------------------------------------------------------------------------------------------------------

    def _shell(self, base: Launch, rest: list[str], depth: int) -> list[Launch]:
        base = msgspec.structs.replace(base, in_shell=True)
        index = 0
        options: list[str] = []
        while index < len(rest) and rest[index].startswith(("-", "+")) and rest[index] not in ("-", "--"):
            option = rest[index]
            options.append(option)
            if not option.startswith("--") and "c" in option:
                index += 1
                if index >= len(rest):
                    return [base]
                # bash -c CODE NAME ARGUMENTS...
                startup = read_at_start(base.argv[0], options, base.env, self.tree)
                code, words = rest[index].encode("utf-8", "surrogateescape"), rest[index + 1 :]
                return self._commands(base, None, shell.facts(code), words[1:], depth, code, startup, words[:1])
            if option in ("--rcfile", "--init-file"):
                options += rest[index + 1 : index + 2]
            index += 2 if option in ("-o", "-O", "+o", "+O", "--rcfile", "--init-file") else 1
        if index < len(rest) and rest[index] in ("-", "--"):
            index += 1
        if index >= len(rest):
            return [base]
        path = self.tree.resolve(rest[index].encode("utf-8", "surrogateescape"), base.cwd)
        entry = None if path is None else self.tree.get(path)
        if path is None or entry is None or entry.type != "file":
            return [base]
        startup = read_at_start(base.argv[0], options, base.env, self.tree)
        return self._run_shell(base, path, rest[index + 1 :], depth, startup)

    def _run_shell(
        self, base: Launch, path: bytes, rest: list[str], depth: int, startup: Sequence[bytes] = ()
    ) -> list[Launch]:
        base = msgspec.structs.replace(base, in_shell=True)
        if all(each.path != path for each in base.touched):
            base = msgspec.structs.replace(
                base, touched=(*base.touched, Touched(path, "program", sure=True, by=base.touched[0].path))
            )
        return self._commands(base, path, self.facts.shell(path), rest, depth, self.facts.text(path), startup)

    def _commands(
        self,
        base: Launch,
        script: bytes | None,
        facts: ShellFacts | Unreadable,
        rest: list[str],
        depth: int,
        code: bytes | None,
        startup: Sequence[bytes] = (),
        name: Sequence[str] = (),
    ) -> list[Launch]:
        """What shell code starts. ``startup`` is what the shell reads before it, ``name`` what ``$0`` is, if given."""
        if isinstance(facts, Unreadable):
            named = "the command line" if script is None else f"/{script.decode('utf-8', 'backslashreplace')}"
            caveat = f"{named} could not be read as a shell script: {facts.reason}"
            return [msgspec.structs.replace(base, caveats=(*base.caveats, caveat))]
        state = Shell(self.tree, self.facts, base.cwd)
        state.env.update(base.env)
        state.touched += base.touched
        state.texts += base.texts
        state.set_by += base.set_by
        before = len(state.touched)
        for path in startup:
            state.read_first(path, base.touched[0].path)
        state.run(facts, script, script if script is not None else base.touched[0].path)
        base = msgspec.structs.replace(
            base,
            env=state.env,
            touched=tuple(state.touched),
            texts=tuple(state.texts),
            set_by=tuple(state.set_by),
            open=tuple(dict.fromkeys((*base.open, *state.open))),
        )
        launches: list[Launch] = []
        found = [(script, words, line) for words, line in facts.commands]
        computed = [(script, each) for each in facts.computed]
        sourced = [each for each in state.touched[before:] if each.edge == "source"]
        sources = len(facts.sources) + len(startup)
        for each in sourced:  # what a sourced file starts is started here
            inner = self.facts.shell(each.path)
            if isinstance(inner, ShellFacts):
                found += [(each.path, words, 0) for words, _ in inner.commands]
                computed += [(each.path, one) for one in inner.computed]
                sources += len(inner.sources)
        places = [base.cwd, *self._entered(base, [(by, words) for by, words, _ in found], computed)]
        moved = None
        if len(places) == 2 and sources <= len(sourced) and self._open_to_all(places[1]):
            moved = surely_entered(code, [(words, line) for _, words, line in found])
        for by, words, line in found:
            argv = self._argv(base, by, words, rest, name)
            behind = moved is not None and by == script and line >= moved
            for env in _variants(base) if argv else ():
                for place in places[1:] if behind else places:
                    here = msgspec.structs.replace(base, cwd=place)
                    for launch in self._behind(here, argv, env, depth, sure=False):
                        if launch not in launches:
                            launches.append(launch)
        for by, one in computed:
            self._computed(base, by, one, found, depth, launches, frozenset(each.path for each in sourced))
        return launches or [base]

    def _computed(
        self,
        base: Launch,
        script: bytes | None,
        computed: Computed,
        found: Sequence[tuple[bytes | None, Sequence[str], int]],
        depth: int,
        launches: list[Launch],
        sourced: frozenset[bytes],
    ) -> None:
        """Add what a computed name of a program can be. Where it can be anything, every launch says so, unless a
        program of a distribution's package computes it (``lsb_release``): it starts no engine."""
        if computed.kind == "source":
            return  # the shell has read what it can be
        files = candidates(computed, self.tree, base.cwd, script, base.env)
        if files is None:
            if computed.kind == "directory" and not _asks_directory(launches, found):
                return
            if script is not None and script not in sourced and self._packaged(script):
                return
            note = sentence(computed, script)
            launches[:] = [
                msgspec.structs.replace(each, open=tuple(dict.fromkeys((*each.open, note))))
                for each in launches or [base]
            ]
            return
        for path in files if computed.kind != "directory" else ():
            name = "/" + path.decode("utf-8", "surrogateescape")
            before = [[name]]
            if computed.kind == "argument":
                here = (words for by, words, line in found if by == script and line in (0, computed.line))
                before = [
                    [*words[: words.index(computed.pattern)], name] for words in here if computed.pattern in words
                ]
            for argv in before:
                for launch in self._behind(base, argv, base.env, depth, sure=False):
                    if launch not in launches:
                        launches.append(launch)

    def _packaged(self, path: bytes) -> bool:
        """Tell whether a file belongs to a package of the image's distribution."""
        claims = self.attribution.claims.get(path, ())
        return any(self.attribution.owners[claim.owner].kind in ("dpkg", "rpm") for claim in claims)

    def _open_to_all(self, directory: bytes) -> bool:
        """Tell whether every user can enter a directory."""
        parts = directory.split(b"/")
        entries = [self.tree.get(b"/".join(parts[: end + 1])) for end in range(len(parts))] if directory else []
        return all(entry is not None and entry.mode & 0o001 for entry in entries)

    def _entered(
        self,
        base: Launch,
        commands: Sequence[tuple[bytes | None, Sequence[str]]],
        computed: Sequence[tuple[bytes | None, Computed]],
    ) -> list[bytes]:
        """Return the directories that shell code changes to: its other commands run there, or where it began."""
        found: dict[bytes, None] = {}
        matched = [
            each
            for script, one in computed
            if one.kind == "directory"
            for each in candidates(one, self.tree, base.cwd, script, base.env) or ()
        ]
        listed = [part.encode("utf-8", "surrogateescape") for part in base.env.get("CDPATH", "").split(":") if part]
        for script, words in commands:
            if words[0] in ("cd", "pushd"):
                target = next((word for word in words[1:] if not word.startswith("-")), "~")
                for name in at_homes(own_place(target, script), base.env, self.tree):
                    for cwd in (base.cwd, *found, *listed) if HOLE not in name else ():
                        path = self.tree.resolve(name.encode("utf-8", "surrogateescape"), cwd)
                        if path is not None and path != base.cwd and self.tree.is_dir(path):
                            found[path] = None
                            break
        return [*dict.fromkeys((*[*found][:_MAX_VARIANTS], *matched))]

    def _argv(
        self,
        base: Launch,
        script: bytes | None,
        words: Sequence[str],
        rest: Sequence[str],
        name: Sequence[str] = (),
    ) -> list[str]:
        """Return the command line of a shell command, with the script's own arguments where a word does not fold: it
        is mostly ``"$@"``."""
        argv: list[str] = []
        for word in words:
            if word == HOLE_FILE and script is None:
                argv += name
            elif word == HOLE:
                argv += rest
            else:
                argv.append(at_homes(own_place(word, script), base.env, self.tree)[0])
        return argv


def _asks_directory(launches: Sequence[Launch], found: Sequence[tuple[bytes | None, Sequence[str], int]]) -> bool:
    """Tell whether the working directory can decide what is loaded: by Python's search path, or a relative name."""
    for launch in launches:
        start = launch.python
        if start is not None and not (start.mode == "script" and start.target.startswith("/")):
            return True
    return any("/" in words[0] and not words[0].startswith(("/", "~")) for _, words, _ in found)


def _started(words: Sequence[str], index: int) -> str | None:
    """Return the program of ``start-stop-daemon --exec PROGRAM -- ARGUMENTS``, if a word names it."""
    name, equals, value = words[index].partition("=")
    if equals and name in _STARTS:
        return value
    return words[index] if index and words[index - 1] in _STARTS else None


def _code(word: str, after: Sequence[str]) -> str | None:
    """Return the shell code that an option of a wrapper gives (``su -c``, ``flock FILE -c``, ``script -c``)."""
    name, equals, value = word.partition("=")
    if name not in ("-c", "--command", "--session-command", "-qc", "-ec"):
        return None
    return value if equals else next(iter(after), None)


def _words(text: str) -> list[str]:
    """Return the words of a text as a shell would split it, roughly where it is none."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _expanded(word: str, env: Mapping[str, str], tree: Tree) -> str:
    """Return a word of ``env -S`` with its ``${NAME}`` filled in; a name that ENV lacks is left as it is."""
    known = {"HOME": at_homes("~", env, tree)[0], **env}
    return re.sub(r"\$\{(\w+)\}", lambda name: known.get(name[1], name[0]), word)


def _variants(launch: Launch) -> list[Mapping[str, str]]:
    """Return what the ENV of a shell's commands can be: with all that its code sets, and, where a line that may not
    run decides which modules and programs are found, without all such, and with each of them alone."""
    open_ = [(name, part) for name in ("PATH", "PYTHONPATH") for part in sorted(launch.unsure(name))]
    found = [launch.env]
    kept: list[tuple[tuple[str, str], ...]] = [(), *((each,) for each in open_[:_MAX_VARIANTS])] if open_ else []
    for some in kept:
        env = dict(launch.env)
        for name in {name for name, _ in open_}:
            left_out = {part for other, part in open_ if other == name and (other, part) not in some}
            env[name] = ":".join(part for part in env.get(name, "").split(":") if part not in left_out)
            if not env[name]:
                del env[name]
        if env not in found:
            found.append(env)
    return found


def split_entry(entry: str) -> list[str]:
    """Return the command line of ``--entry``: a bare module name means ``python -m``."""
    words = shlex.split(entry)
    if words and words[0] == "-m":
        return ["python", *words]
    if len(words) >= 1 and re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", words[0]) and "/" not in words[0]:
        return ["python", "-m", *words]
    return words


def python_names(attribution: Attribution, exists: Callable[[bytes], bool]) -> Iterator[str]:
    """Yield command names under which the image's interpreters are found, for entries that only say ``python``."""
    for environment in attribution.environments:
        for name in (b"python3", b"python", b"python" + environment.version.encode()):
            path = (environment.prefix + b"/" if environment.prefix else b"") + b"bin/" + name
            if exists(path):
                yield "/" + path.decode("utf-8", "surrogateescape")
