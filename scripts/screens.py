"""Records the terminal screens of the documentation.

  screens.py OUT URL PASSWORDFILE FINGERPRINT

Runs decamp on a terminal of 100 columns and writes each screen as SVG into the folder OUT. The source is an emulated
host. Run it through scripts/screens.sh.
"""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

COLUMNS, LINES = 100, 60
SHOWN_SOURCE = "esxi://root@esx1"


def record(command, env, until=None):
    """Runs a command on a terminal. Returns the screen when its text matches `until` for the first time, and at the end."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True)
    os.close(slave)
    middle = None
    while True:
        ready, _, _ = select.select([master], [], [], 600)
        if not ready:
            raise SystemExit(f"{command}: no output for 600 s")
        try:
            data = os.read(master, 65536)
        except OSError:  # the last process closed the terminal
            break
        if not data:
            break
        stream.feed(data)
        if until and middle is None and re.search(until, "\n".join(screen.display)):
            middle = copy(screen)
    code = process.wait()
    return middle, copy(screen), code


def copy(screen):
    """Returns the lines of a screen as styled text, without empty lines at the end."""
    lines = []
    for y in range(LINES):
        line = Text()
        for x in range(COLUMNS):
            cell = screen.buffer[y][x]
            color = None if cell.fg == "default" else cell.fg.replace("brown", "yellow")
            if color and re.fullmatch(r"[0-9a-f]{6}", color):
                color = "#" + color
            line.append(cell.data, Style(color=color, bold=cell.bold, underline=cell.underscore, reverse=cell.reverse))
        line.rstrip()
        lines.append(line)
    while lines and not lines[-1].plain:
        lines.pop()
    return lines


def save(path, title, shown, lines, replace):
    """Writes a screen as SVG, below the command line that was typed."""
    console = Console(width=COLUMNS, record=True, file=open(os.devnull, "w"), force_terminal=True, color_system="truecolor")
    console.print(Text("$ " + shown, Style(bold=True)))
    for line in lines:
        for old, new in replace:
            while old in line.plain:
                at = line.plain.index(old)
                line = line[:at] + Text(new) + line[at + len(old):]
        console.print(line, no_wrap=True, crop=True, highlight=False)
    console.save_svg(path, title=title)


def main():
    out, url, password, fingerprint = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        vms = os.path.join(folder, "vm")
        os.mkdir(vms)
        env = {"PATH": os.environ["PATH"], "HOME": folder, "TERM": "xterm-256color", "LANG": "C.UTF-8", "DECAMP_PASSWORD_FILE": password}
        state = ["--state", os.path.join(folder, "state")]
        login = state + ["--fingerprint", fingerprint]
        replace = [(url, SHOWN_SOURCE), (url.split("@")[1], "esx1"), (vms, "/srv/vm")]

        def screen(name, args, flags, until=None):
            middle, end, got = record(["./decamp", *args, *flags], env, until)
            if got != 0 or (until and middle is None):
                raise SystemExit(f"{name}: exit code {got}\n" + "\n".join(line.plain for line in end))
            shown = " ".join(["decamp", *args]).replace(url, SHOWN_SOURCE).replace(vms, "/srv/vm")
            for suffix, lines in (("-running", middle), ("", end)):
                if lines is not None:
                    save(os.path.join(out, name + suffix + ".svg"), "decamp", shown, [line.copy() for line in lines], replace)

        screen("ls", ["ls", url], login)
        screen("migrate", ["migrate", url, "web01", "--to", "dir:" + vms], login, until=r"\] [4-9]\d %")


main()
