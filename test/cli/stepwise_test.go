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

// stepwiseBinary builds a decamp whose runs wait until their events are read. Runs of other builds do not wait.
var stepwiseBinary = sync.OnceValues(func() (string, error) {
	path := binary + "-stepwise"
	return path, program.Build(path, "stepwise")
})

// startStepwise starts decamp with a standard output that blocks at the next event until the test requests it. Therefore
// the test acts at the last event that it has read, also on a busy machine.
func (u *migration) startStepwise() {
	u.t.Helper()
	var err error
	u.Path, err = stepwiseBinary()
	must(u.t, err)
	read, write := newPipe(u.t, unix.O_DIRECT) // each write is a packet
	_, err = unix.FcntlInt(write.Fd(), unix.F_SETPIPE_SZ, onePacket)
	must(u.t, err)
	copied, copying := newPipe(u.t, 0)
	u.events = bufio.NewScanner(&packetReader{from: read, copied: copied, copying: copying})
	u.Stdout = write
	must(u.t, u.Start())
	must(u.t, write.Close())
}

// onePacket is the maximum size of a packet in bytes, and the size of a pipe that holds one packet.
const onePacket = 4096

func newPipe(t *testing.T, flags int) (read, write *os.File) {
	t.Helper()
	var ends [2]int
	must(t, unix.Pipe2(ends[:], flags|unix.O_CLOEXEC))
	read, write = os.NewFile(uintptr(ends[0]), "read end"), os.NewFile(uintptr(ends[1]), "write end")
	t.Cleanup(func() { read.Close(); write.Close() }) // startStepwise may have closed one
	return read, write
}

// packetReader reads a pipe that holds one packet. A packet that was read stays in the pipe, so that the writer waits
// with the next one, until Read needs more.
type packetReader struct {
	from            *os.File
	copied, copying *os.File // the ends of a pipe for the copy of a packet
	packet          []byte   // bytes that Read has not returned yet
	held            bool     // whether a packet that was copied is still in from
}

func (p *packetReader) Read(b []byte) (int, error) {
	if len(p.packet) == 0 {
		if err := p.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, p.packet)
	p.packet = p.packet[n:]
	return n, nil
}

// next removes the held packet from the pipe and copies the next one.
func (p *packetReader) next() error {
	packet := make([]byte, onePacket) // a shorter read would lose the rest of a packet
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
