package cli

import (
	"bufio"
	"errors"
	"io"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/test/program"
)

// stepwiseBinary builds a decamp whose runs wait until their events are read. In others they continue.
var stepwiseBinary = sync.OnceValues(func() (string, error) {
	path := binary + "-stepwise"
	return path, program.Build(path, "stepwise")
})

// startStepwise starts decamp with a standard output that blocks at the next event until the test requests it. The
// test therefore acts at the last event that it has read, at any load.
func (u *under) startStepwise() {
	u.t.Helper()
	var err error
	u.Path, err = stepwiseBinary()
	must(u.t, err)
	read, write := pipe(u.t, unix.O_DIRECT) // each write is a packet
	_, err = unix.FcntlInt(write.Fd(), unix.F_SETPIPE_SZ, onePacket)
	must(u.t, err)
	copied, copying := pipe(u.t, 0)
	u.events = bufio.NewScanner(&packets{from: read, copied: copied, copying: copying})
	u.Stdout = write
	must(u.t, u.Start())
	must(u.t, write.Close())
}

// onePacket is the size of the largest packet, and of a pipe that has room for one packet, in bytes.
const onePacket = 4096

func pipe(t *testing.T, flags int) (read, write *os.File) {
	t.Helper()
	var ends [2]int
	must(t, unix.Pipe2(ends[:], flags|unix.O_CLOEXEC))
	read, write = os.NewFile(uintptr(ends[0]), "read end"), os.NewFile(uintptr(ends[1]), "write end")
	t.Cleanup(func() { read.Close(); write.Close() }) // startStepwise may have closed one
	return read, write
}

// packets reads a pipe that holds one packet. A packet that was read stays in the pipe, so that the writer waits
// with the next one, until Read needs more.
type packets struct {
	from            *os.File
	copied, copying *os.File // the ends of a pipe for the copy of a packet
	packet          []byte   // what Read has not returned yet
	held            bool     // a packet that was copied is in from
}

func (p *packets) Read(b []byte) (int, error) {
	if len(p.packet) == 0 {
		if err := p.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, p.packet)
	p.packet = p.packet[n:]
	return n, nil
}

// next removes the packet that is held from the pipe, and copies the next one.
func (p *packets) next() error {
	packet := make([]byte, onePacket) // a read of less would lose the rest of a packet
	if p.held {
		if _, err := p.from.Read(packet); err != nil {
			return err
		}
	}
	n, err := int64(0), error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Tee(int(p.from.Fd()), int(p.copying.Fd()), onePacket, 0)
	}
	if err != nil {
		return err
	}
	if n == 0 {
		return io.EOF
	}
	p.held = true
	if _, err = io.ReadFull(p.copied, packet[:n]); err != nil {
		return err
	}
	p.packet = packet[:n]
	return nil
}
