//go:build cgo

// Command nbdkit-nfc-plugin is the nbdkit plugin "nfc", which virt-v2v -it nfc and Forklift start. It is a C
// shared library; scripts/nbdkit-plugin.sh builds it. Package nfcplugin has its logic.
//
// nbdkit forks after it has loaded a plugin, and the threads of a Go runtime do not survive that. Therefore
// late.ld keeps the constructors of the runtime from running, and plugin.c calls them after the fork.
package main

/*
#cgo CFLAGS: -Wall -Wextra
#cgo LDFLAGS: -Wl,--unresolved-symbols=ignore-in-object-files
#cgo nocallback take_reads
#cgo noescape take_reads
#cgo nocallback finish_read
#cgo noescape finish_read
#include <stdlib.h>
#include "plugin.h"
*/
import "C"

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfcplugin"
	"github.com/decamp/decamp/internal/tuning"
)

// The disk between nfcStart and nfcStop.
var (
	export      *nfcplugin.Export
	readsQueued *os.File // readable when plugin.c has queued reads
)

// main is never called: nbdkit loads the plugin.
func main() {}

// nfcCheck reports an error of the parameters. It returns 0 if they are valid.
//
//export nfcCheck
func nfcCheck() C.int {
	_, err := nfcplugin.ParseParameters(commandLine())
	return reportFailure(err)
}

// nfcStart opens the disk. It returns 0 on success.
//
//export nfcStart
func nfcStart() C.int {
	tuning.Apply()
	p, err := nfcplugin.ParseParameters(commandLine())
	if err != nil {
		return reportFailure(err)
	}
	ctx, stop := untilQuit()
	defer stop()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return reportFailure(os.NewSyscallError("eventfd", err))
	}
	readsQueued = os.NewFile(uintptr(fd), "eventfd")
	C.reads_queued = C.int(fd)
	if export, err = nfcplugin.Open(ctx, p, nfcplugin.Options{Log: newLog(), Warn: reportError}); err != nil {
		return reportFailure(err)
	}
	go serveReads(export)
	return 0
}

// nfcStop closes the disk and all sessions.
//
//export nfcStop
func nfcStop() {
	if export == nil {
		return
	}
	if err := export.Close(); err != nil {
		reportError(nfcplugin.Message(err))
	}
	export = nil
	_ = readsQueued.Close()
}

// nfcSize returns the size of the disk in bytes.
//
//export nfcSize
func nfcSize() C.int64_t { return C.int64_t(export.Size()) }

// nfcDescription returns the description of the disk. The caller frees it.
//
//export nfcDescription
func nfcDescription() *C.char { return C.CString(export.Description()) }

// serveReads executes the reads that plugin.c queues, each in a goroutine, until readsQueued is closed.
func serveReads(from *nfcplugin.Export) {
	for {
		var count [8]byte
		if _, err := readsQueued.Read(count[:]); err != nil {
			return
		}
		for call := C.take_reads(); call != nil; {
			next := call.next // call is invalid when it has ended
			go executeRead(from, call)
			call = next
		}
	}
}

// executeRead executes a read.
func executeRead(from *nfcplugin.Export, call *C.struct_read_call) {
	ctx, stop := untilQuit()
	err := from.ReadAt(ctx, unsafe.Slice((*byte)(call.buf), int(call.count)), int64(call.offset))
	stop()
	if err != nil {
		C.finish_read(call, C.int(errorNumber(err)), C.CString(nfcplugin.Message(err)))
		return
	}
	C.finish_read(call, 0, nil)
}

// nfcExtents adds the extents of a range to list: all, or only the first. It returns 0 on success.
//
//export nfcExtents
func nfcExtents(count C.uint32_t, offset C.uint64_t, first C.int, list *C.struct_nbdkit_extents) C.int {
	ctx, stop := untilQuit()
	defer stop()
	extents, err := export.Extents(ctx, disk.Range{Off: int64(offset), Len: int64(count)}, first != 0)
	if err != nil {
		return reportFailure(err)
	}
	for _, x := range extents {
		kind := C.uint32_t(0)
		if x.Kind == disk.Zero {
			kind = C.NBDKIT_EXTENT_HOLE | C.NBDKIT_EXTENT_ZERO
		}
		if C.nbdkit_add_extent(list, C.uint64_t(x.Off), C.uint64_t(x.Len), kind) == -1 {
			return -1 // nbdkit_add_extent has reported its error
		}
	}
	return 0
}

// commandLine returns the parameters that plugin.c stored.
func commandLine() (list []nfcplugin.Value) {
	for v := C.values; v != nil; v = v.next {
		list = append(list, nfcplugin.Value{Name: C.GoString(v.name), Value: C.GoString(v.text)})
	}
	return list
}

// slow is the duration after which a call begins to look for the end of nbdkit.
const slow = time.Second

// untilQuit returns a context that ends if nbdkit is ending, for a call that is slow. nbdkit reports its end to
// a call that waits, so a call that is fast costs only a timer. The caller must call stop, which waits until the call
// of nbdkit has ended: nbdkit prints an error if its end interrupts that.
func untilQuit() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	timer := time.AfterFunc(slow, func() {
		defer close(ended)
		for ctx.Err() == nil {
			if C.wait_for_quit() == -1 {
				cancel()
			}
		}
	})
	return ctx, func() {
		cancel()
		if !timer.Stop() {
			<-ended
		}
	}
}

// reportFailure prints an error and sets errno. It returns -1, or 0 without an error.
func reportFailure(err error) C.int {
	if err == nil {
		return 0
	}
	reportError(nfcplugin.Message(err))
	C.nbdkit_set_error(C.int(errorNumber(err)))
	return -1
}

// errorNumber returns the errno of an error.
func errorNumber(err error) syscall.Errno {
	switch {
	case errors.Is(err, context.Canceled):
		return syscall.ESHUTDOWN
	case fault.Is(err, fault.Denied):
		return syscall.EPERM
	}
	return syscall.EIO
}

// reportError prints a line for the user.
func reportError(text string) {
	line := C.CString(text)
	defer C.free(unsafe.Pointer(line))
	C.report_error(line)
}

// debugLines writes each line to nbdkit's log.
type debugLines struct{}

// Write implements io.Writer. slog calls it once for each record.
func (debugLines) Write(p []byte) (int, error) {
	line := C.CString(strings.TrimSuffix(string(p), "\n"))
	defer C.free(unsafe.Pointer(line))
	C.report_debug(line)
	return len(p), nil
}

// newLog returns a log without times, because nbdkit's reader adds them.
func newLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(debugLines{}, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}
