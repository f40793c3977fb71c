"""The programs that run the one that their arguments, or what they read, name.

Every guard and reader has them from here. To add one, add its row; ``Wrapper`` says what is to be
known of it. What is in no row is taken for a program that runs nothing else.
"""

from dataclasses import dataclass
from typing import Final

SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish"})
"""Programs that run shell text: an argument of ``-c``, or what they read."""
LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "127.0.1.1", "::1", "0"})
"""What ssh calls the machine that it runs on."""


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How the arguments of a program that runs another one are told from the other's."""

    valued: str = ""
    """Its short options that take a value."""
    long: tuple[str, ...] = ()
    """Its long options that take a value as a word of its own."""
    operands: int = 0
    """How many arguments of its own stand in front of the program."""
    scripts: str = ""
    """Its short options whose value is shell text."""
    joins: bool = False
    """What it runs is shell text: its words, joined."""
    adds: bool = False
    """It gives the program arguments that it reads."""
    reads: bool = False
    """It runs shell text that it reads, later."""
    flags: tuple[str, ...] = ()
    """Long options that take no value, where it matters: see ``programs``."""


# fmt: off
_PLAIN: Final = (
    "aa-exec", "builtin", "busybox", "catchsegv", "chronic", "command", "coproc",
    "dbus-run-session", "dumb-init", "eatmydata", "fakechroot", "i386", "ld-linux-aarch64.so.1",
    "ld-linux-x86-64.so.2", "ld-linux.so.2", "ld-musl-x86_64.so.1", "ld.so", "linux32", "linux64",
    "nocache", "nohup", "noglob", "pipexec", "proxychains", "proxychains4", "pty", "setsid", "tini",
    "torsocks", "toybox", "tsocks", "unbuffer", "valgrind", "winpty", "x86_64", "xvfb-run",
)
"""Those of which nothing is to be known."""
WRAPPERS: Final[dict[str, Wrapper]] = {
    **dict.fromkeys(_PLAIN, Wrapper()),
    "at":       Wrapper("qf", reads=True),
    "batch":    Wrapper("qf", reads=True),
    "bwrap":    Wrapper(long=("--bind", "--ro-bind", "--dev-bind", "--symlink", "--setenv")),
    "caffeinate": Wrapper("tw"),
    "capsh":    Wrapper(scripts="c"),
    "cgexec":   Wrapper("g"),
    "chpst":    Wrapper("uU/bnelmdofcprt"),
    "choom":    Wrapper("np", ("--adjust",)),
    "chroot":   Wrapper(long=("--groups", "--userspec"), operands=1),
    "chrt":     Wrapper("TPD", operands=1),
    "cpulimit": Wrapper("lp", ("--limit",)),
    "crontab":  Wrapper("u", reads=True),
    "daemonize": Wrapper("aceolpuE"),
    "doas":     Wrapper("uC"),
    "entr":     Wrapper(),
    "env":      Wrapper("uC", ("--unset", "--chdir"), scripts="S", flags=("--ignore-environment",)),
    "envdir":   Wrapper(operands=1),
    "exec":     Wrapper("a"),
    "faketime": Wrapper("fp", operands=1),
    "fakeroot": Wrapper("lsib"),
    "firejail": Wrapper(),
    "flock":    Wrapper("wE", ("--timeout", "--wait", "--conflict-exit-code"), 1, "c"),
    "gosu":     Wrapper(operands=1),
    "hyperfine": Wrapper("wrmMpcSu", ("--warmup", "--runs", "--prepare", "--cleanup"), joins=True),
    "ionice":   Wrapper("cn", ("--class", "--classdata")),
    "ltrace":   Wrapper("aAeDFlnosuwx"),
    "nice":     Wrapper("n", ("--adjustment",)),
    "nsenter":  Wrapper("tSG", ("--target", "--setuid", "--setgid")),
    "numactl":  Wrapper("iNmCpPw", ("--interleave", "--membind", "--cpunodebind", "--physcpubind")),
    "parallel": Wrapper("jaIS", ("--jobs", "--arg-file", "--colsep", "--joblog"), joins=True,
                        adds=True),
    "perf":     Wrapper("eopFcrCtu", operands=1),
    "pkexec":   Wrapper("u", ("--user",)),
    "prlimit":  Wrapper("p", ("--pid",)),
    "rlwrap":   Wrapper("abCDfgHlOpPqsStz"),
    "runcon":   Wrapper("turl", ("--type", "--user", "--role", "--range"), 1),
    "runuser":  Wrapper("ugG", ("--user", "--group"), scripts="c"),
    "s6-setuidgid": Wrapper(operands=1),
    "screen":   Wrapper("cehpsSTt"),
    "script":   Wrapper("EIOTBm", operands=1, scripts="c"),
    "setarch":  Wrapper(operands=1),
    "setpriv":  Wrapper(long=("--reuid", "--regid", "--groups", "--inh-caps", "--bounding-set")),
    "setuidgid": Wrapper(operands=1),
    "sg":       Wrapper(operands=1, scripts="c", joins=True),
    "softlimit": Wrapper("acdflmoprst"),
    "ssh":      Wrapper("BbcDEeFIiJLlmOoPpQRSWw", operands=1, joins=True),
    "stdbuf":   Wrapper("ioe", ("--input", "--output", "--error")),
    "strace":   Wrapper("eopPsuaIESOX"),
    "su":       Wrapper("gGsw", ("--group", "--shell"), 1, "c"),
    "su-exec":  Wrapper(operands=1),
    "sudo":     Wrapper("ugpCThDRUrt", ("--user", "--group", "--prompt", "--chdir", "--host",
                        "--close-from", "--chroot", "--command-timeout", "--other-user"),
                        flags=("--login", "--preserve-env", "--non-interactive", "--stdin")),
    "systemd-inhibit": Wrapper(long=("--what", "--who", "--why", "--mode")),
    "systemd-run": Wrapper("pHMuEt", ("--property", "--unit", "--setenv", "--slice", "--uid",
                        "--gid", "--nice", "--description", "--on-active", "--on-calendar",
                        "--on-boot", "--machine", "--host", "--working-directory"),
                        flags=("--user", "--scope", "--pty", "--pipe", "--wait", "--collect",
                        "--quiet", "--no-block", "--same-dir", "--shell", "--system")),
    "taskset":  Wrapper("p", operands=1),
    "time":     Wrapper("fo", ("--format", "--output")),
    "timeout":  Wrapper("ks", ("--kill-after", "--signal"), 1),
    "tmux":     Wrapper("LSfsntcFexyl", operands=1, joins=True),
    "uclampset": Wrapper("mMp"),
    "unshare":  Wrapper("SGRw", ("--setuid", "--setgid", "--root", "--wd")),
    "watch":    Wrapper("ns", ("--interval",), joins=True),
    "xargs":    Wrapper("IEndLPsa", ("--arg-file", "--delimiter", "--max-args", "--max-procs",
                        "--max-chars", "--max-lines", "--replace", "--eof", "--process-slot-var"),
                        adds=True),
}
"""Programs that run the one that their arguments name."""
# fmt: on
