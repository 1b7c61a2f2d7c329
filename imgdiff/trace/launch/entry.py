"""What a command line starts: through wrappers, shells, scripts and shebangs to the program that stays."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from imgdiff.interpreters import is_python
from imgdiff.kinds import shell
from imgdiff.model import (
    HOLE,
    Attribution,
    Computed,
    ElfFacts,
    FactSource,
    ShellFacts,
    Tree,
    Unreadable,
)
from imgdiff.trace.launch.computed import candidates, sentence
from imgdiff.trace.launch.directories import surely_entered
from imgdiff.trace.launch.programs import Programs
from imgdiff.trace.launch.runners import RUNNERS, chosen, commands, directories, inside
from imgdiff.trace.launch.shells import asks_directory, command_line, entered, open_to_all, variants
from imgdiff.trace.launch.sourced import Shell, Touched
from imgdiff.trace.launch.started import Launch, PythonStart, python_start
from imgdiff.trace.launch.startup import read_at_start
from imgdiff.trace.launch.words import expanded, shell_code, started_by, words_of

_MAX_PLACES = 6  # directories that a wrapper names
_MAX_DEPTH = 16  # of scripts that start scripts
_SHELLS = frozenset({b"sh", b"bash", b"dash", b"ash", b"hush", b"zsh", b"ksh"})
_MANY = re.compile(rb"(?:busybox|toybox)[\w.-]*")
_COREUTILS = "--coreutils-prog-shebang="  # coreutils built as one program: each of its names is a script for it
_MAINS = frozenset({"Py_BytesMain", "Py_Main"})  # what CPython's Programs/python.c calls, under whatever name
_MODULE = re.compile(r"(?!\d)\w+(?:\.\w+)*")
_WRAPPERS = frozenset(
    b"tini tini-static dumb-init catatonit docker-init env numactl taskset nice ionice chrt stdbuf timeout setpriv "
    b"setsid gosu su-exec sudo runuser nohup time catchsegv unshare capsh strace ltrace gdb valgrind perf nsys ncu "
    b"vtune mpirun mpiexec xvfb-run flock prlimit eatmydata s6-setuidgid "
    b"linux32 linux64 setarch arch xargs".split()
)
_LOGIN = frozenset({"-", "-l", "-i", "--login"})  # of su, sudo, runuser
_SPLIT = re.compile(r"-[0iv]*S(.*)|--split-string(?:=(.*))?", re.DOTALL)
_SHELL_WORDS = frozenset({"exec", "command", "builtin", "nohup", "time", "then", "do", "else", "!", "{", "("})


class Follower:
    """Follows command lines in one image."""

    def __init__(self, tree: Tree, attribution: Attribution, facts: FactSource) -> None:
        self.tree, self.attribution, self.facts = tree, attribution, facts
        self.programs = Programs(tree, attribution)

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
        found = self.programs.which(argv[0], env, cwd)
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
        if any(_MANY.fullmatch(name) for name in names):
            # One file for many programs, which go by the name they run under.
            name = found.rpartition(b"/")[2]
            if _MANY.fullmatch(name):
                base = msgspec.structs.replace(base, argv=base.argv[1:])
                name = base.argv[0].encode("utf-8", "surrogateescape") if base.argv else name
            names = {name.rpartition(b"/")[2]}
        argv = list(base.argv)
        if names & _SHELLS:
            return self._shell(base, argv[1:], depth)
        facts = self.facts.elf(base.touched[0].path)
        if any(is_python(name) for name in names) or (
            isinstance(facts, ElfFacts) and not _MAINS.isdisjoint(facts.symbols)
        ):
            start = python_start(found, self.programs.environment(found), argv[1:])
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
            if (module := _module(start.arguments, index)) is not None:
                python = "/" + start.invoked.decode("utf-8", "surrogateescape")
                words = [python, "-m", module, *start.arguments[index + 1 :]]
                found = self._behind(base, words, base.env, depth, sure=False)
                return [msgspec.structs.replace(each, handed=True) for each in found]
            if word.startswith("-") or HOLE in word:
                continue
            rest = list(start.arguments[index:])
            if self.programs.which(word, base.env, base.cwd) is None:
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
                words = words_of(joined or rest[index + 1])  # of a shebang all are split already
                words = [expanded(each, env, self.tree) for each in (*words, *rest[index + (1 if joined else 2) :])]
                return self._in_each(base, places, env, words, depth, wrapped=True)
            elif (code := shell_code(word, rest[index + 1 :])) is not None:
                login = not _LOGIN.isdisjoint(rest)
                command = ["sh", *(["-l"] if login else []), "-c", code]
                homes = self.programs.homes(base.env) if login else []
                found = self._in_each(base, [*places, *homes], env, command, depth)
                if any(len(each.touched) > len(base.touched) + 1 for each in found):  # more than the shell
                    return found
            elif (
                index < position
                and (program := started_by(rest, index))
                and self.programs.which(program, env, base.cwd)
            ):
                return self._in_each(base, places, env, [program, *rest[position:]], depth)
            elif (
                index >= position
                and not word.startswith("-")
                and any(self.programs.which(word, env, place) is not None for place in places)
            ):
                homes = [] if _LOGIN.isdisjoint(rest[:index]) else self.programs.homes(base.env)
                return self._in_each(base, [*places, *homes], env, rest[index:], depth)
            else:
                directory = self.programs.directory_named(word, base.cwd)
                if directory is not None and len(places) < _MAX_PLACES:
                    places[directory] = None
        return []

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
        if len(words) == 2 and words[1].startswith(_COREUTILS):
            program = self.follow([words[0]], base.env, base.cwd, depth + 1)
            base = self._joined(base, program[0], sure=True) if program else base
            return self._wrapped(msgspec.structs.replace(base, argv=(absolute, *rest)), rest, depth) or [base]
        launches = [
            self._interpreted(base, each)
            for each in self.follow([*words, absolute, *rest], base.env, base.cwd, depth + 1)
            # An interpreter that no list knows could start its argument, which is this script.
            if each.python is not None or each.in_shell or all(one.path != path for one in each.touched)
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
            return [msgspec.structs.replace(base, told=True)]
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
        places = [base.cwd, *entered(self.tree, base, [(by, words) for by, words, _ in found], computed)]
        moved = None
        if len(places) == 2 and sources <= len(sourced) and open_to_all(self.tree, places[1]):
            moved = surely_entered(code, [(words, line) for _, words, line in found])
        for by, words, line in found:
            argv = command_line(self.tree, base, by, words, rest, name)
            behind = moved is not None and by == script and line >= moved
            for env in variants(base) if argv else ():
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
            if computed.kind == "directory" and not asks_directory(launches, found):
                return
            if script is not None and script not in sourced and self.programs.packaged(script):
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


def _module(words: Sequence[str], index: int) -> str | None:
    """Return the module that a launcher's option names (``torchrun -m X``, ``accelerate launch --module X``)."""
    name, equals, value = words[index].partition("=")
    before = words[index - 1] if index else ""
    found = value if equals and name == "--module" else words[index] if before in ("-m", "--module") else ""
    return found if _MODULE.fullmatch(found) else None
