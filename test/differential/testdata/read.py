"""Reads disk images with a library that is not decamp's, and writes what they hold.

read.py LIBRARY: each line of the standard input is a JSON object with the format, the path of an
image (in) and the path of the raw file to write (out); each line of the output is a JSON object
with an error, empty if there was none.
"""

import json
import os
import pathlib
import signal
import sys

STEP = 1 << 20
LIMIT = 2  # seconds of CPU for one image


def too_long(*_):
    raise TimeoutError(f"more than {LIMIT} s of CPU")


# The libraries do not keep the parents that they read.
kept = []


def libvmdk(path):
    import pyvmdk

    handle = pyvmdk.handle()
    kept.append(handle)
    handle.open(path)
    handle.open_extent_data_files()
    parent = handle.get_parent_filename()
    if parent:
        handle.set_parent(libvmdk(os.path.join(os.path.dirname(path), parent)))
    return handle


def libqcow(path):
    import pyqcow

    file = pyqcow.file()
    kept.append(file)
    file.open(path)
    parent = file.get_backing_filename()
    if parent:
        file.set_parent(libqcow(os.path.join(os.path.dirname(path), parent)))
    return file


def dissect(image_format, path):
    if image_format == "vmdk":
        from dissect.hypervisor.disk.vmdk import VMDK

        disk = VMDK(pathlib.Path(path))
        return disk, disk.size
    from dissect.hypervisor.disk.qcow2 import QCow2

    disk = QCow2(pathlib.Path(path))
    return disk.open(), disk.size


def pieces(library, image_format, path):
    if library == "dissect":
        disk, size = dissect(image_format, path)
        read = disk.read
    else:
        disk = (libvmdk if image_format == "vmdk" else libqcow)(path)
        size, read = disk.get_media_size(), disk.read_buffer
    yield size, b""
    while size > 0:
        data = read(min(size, STEP))
        if not data:
            raise OSError(f"{size} bytes are missing at the end")
        size -= len(data)
        yield size, data


def main():
    library = sys.argv[1]
    signal.signal(signal.SIGPROF, too_long)
    for line in sys.stdin:
        job = json.loads(line)
        error = ""
        signal.setitimer(signal.ITIMER_PROF, LIMIT)
        try:
            with open(job["out"], "wb") as out:
                for left, data in pieces(library, job["format"], job["in"]):
                    if data.count(0) == len(data):
                        out.seek(len(data), os.SEEK_CUR)
                    else:
                        out.write(data)
                    if left == 0:
                        out.truncate(out.tell())
        except Exception as e:  # noqa: BLE001: whatever a library throws is its answer
            error = f"{type(e).__name__}: {e}"[:300] or "error"
        signal.setitimer(signal.ITIMER_PROF, 0)
        kept.clear()
        print(json.dumps({"error": error}), flush=True)


main()
