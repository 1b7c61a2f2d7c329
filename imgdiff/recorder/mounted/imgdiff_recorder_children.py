"""What can be told of a program that is about to start: whether the recorder will be there too."""

import posix
import sys

import imgdiff_recorder_files as files

_NEEDED = ("IMGDIFF_RECORD", "PYTHONPATH")


def environment(env: object, here: str) -> str:
    """Tell whether a child gets the recorder's variables: inherited, in an environment of its own, or not at all."""
    if env is None:
        kind, names = "inherited", sys.modules["os"].environ
    elif isinstance(env, dict) or type(env) is type(sys.modules["os"].environ):
        kind, names = "own", env
    else:
        return "own"
    found = []
    for name in _NEEDED:
        value = names.get(name)
        if value is None and type(names) is dict:
            value = names.get(name.encode())
        found.append(files.text(value))
    places = [place.rstrip("/") for place in found[1].split(":")]
    return kind if found[0] and here.rstrip("/") in places else "empty-of-recorder"


def unseen(program: str, argv: "list[str]") -> "str | None":
    """Return why a program that is about to start may not be recorded, None where no reason is known."""
    base = program.rpartition("/")[2]
    if base == "env" and _env_takes(argv[1:]):
        return "env takes the recorder's variables from it"
    if base in ("sudo", "su", "runuser", "doas", "chroot", "nsenter", "unshare", "setpriv"):
        return base + " may take the environment or the recorder's directory from it"
    if base.startswith(("python", "pypy")) or program == sys.executable:
        return _flags(argv[1:])
    line = _first_line(program)
    if line[:2] == "#!" and "python" in line:
        return _flags(line[2:].split()[1:])
    return None


def _env_takes(argv: "list[str]") -> bool:
    unset = False
    for word in argv:
        name = word.partition("=")[2] if word.startswith("--unset=") else word[2:] if word[:2] == "-u" else word
        if unset or name != word:
            if name in _NEEDED:
                return True
            unset = word == "-u"
        elif word in ("-", "-i", "--ignore-environment") or word.startswith(tuple([each + "=" for each in _NEEDED])):
            return True
        elif word[:1] != "-" and "=" not in word:
            return False  # the program
        else:
            unset = word == "--unset"
    return False


def _flags(options: "list[str]") -> "str | None":
    skip = False
    for word in options:
        if skip or word.startswith("--") or "python" in word:
            skip = word == "--check-hash-based-pycs"
            continue
        if word[:1] != "-" or word == "-":
            return None
        for at, letter in enumerate(word[1:], 2):
            if letter in "IES":
                return "python -" + letter + " loads no recorder"
            if letter in "cm":
                return None
            if letter in "WX":
                skip = at == len(word)
                break
    return None


def _first_line(program: str) -> str:
    places = [program] if "/" in program else []
    if not places and program:
        path = sys.modules["os"].environ.get("PATH") or "/usr/local/bin:/usr/bin:/bin"
        places = [entry + "/" + program for entry in path.split(":") if entry]
    for place in places:
        if not files.is_file(place):
            continue
        try:
            fd = files.opened(place, files.O_READ)
            try:
                return posix.read(fd, 256).partition(b"\n")[0].decode("latin-1")
            finally:
                posix.close(fd)
        except OSError:
            return ""
    return ""
