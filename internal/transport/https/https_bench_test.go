package https

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/manifest"
)

// benchServer is the environment variable with which the test binary is the server of the benchmarks. The server is
// a separate process, so that getrusage measures only the CPU time of the client.
const benchServer = "HTTPS_BENCH_SERVER"

func TestMain(m *testing.M) {
	if conf := os.Getenv(benchServer); conf != "" {
		if err := serveBench(conf); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// benchConfig configures the server. Rates are in bytes/s; 0 is no limit.
type benchConfig struct {
	Size     int64
	ConnRate int64
	DiskRate int64
}

// benchAddress is the message that the server prints when it is ready.
type benchAddress struct {
	Addr string
	Cert []byte
}

func serveBench(conf string) error {
	var c benchConfig
	if err := json.Unmarshal([]byte(conf), &c); err != nil {
		return err
	}
	all := newLimiter(c.DiskRate)
	s, err := newServer(newNoiseDisk(c.Size), func(raw net.Conn) net.Conn {
		return &pacedConn{Conn: raw, limits: []*rate.Limiter{newLimiter(c.ConnRate), all}}
	})
	if err != nil {
		return err
	}
	defer s.stop()
	out, err := json.Marshal(benchAddress{s.listener.Addr().String(), s.cert.Load().Certificate[0]})
	if err != nil {
		return err
	}
	fmt.Println(string(out))
	_, err = io.Copy(io.Discard, os.Stdin) // returns when the benchmark ends
	return err
}

const paceUnit = 64 << 10

func newLimiter(bytesPerSecond int64) *rate.Limiter {
	if bytesPerSecond == 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(bytesPerSecond), 4*paceUnit)
}

// pacedConn gathers TLS records, so that the server needs little CPU, and limits the rate.
type pacedConn struct {
	net.Conn
	limits []*rate.Limiter
	buf    []byte
}

// Write gathers large records. It sends after a short one, which ends an answer or belongs to the handshake.
func (c *pacedConn) Write(p []byte) (int, error) {
	c.buf = append(c.buf, p...)
	if len(c.buf) < paceUnit && len(p) > 16<<10 {
		return len(p), nil
	}
	for _, l := range c.limits {
		if l.Limit() != rate.Inf {
			if err := l.WaitN(context.Background(), min(len(c.buf), 4*paceUnit)); err != nil {
				return 0, err
			}
		}
	}
	_, err := c.Conn.Write(c.buf)
	c.buf = c.buf[:0]
	return len(p), err
}

// noiseDisk is a disk whose reads only copy memory: it repeats one block of random bytes.
type noiseDisk struct {
	*disk.Pattern
	block []byte
}

func newNoiseDisk(size int64) noiseDisk {
	n := noiseDisk{disk.NewPattern(size), make([]byte, 1<<20)}
	src := rand.NewChaCha8([32]byte{})
	_, _ = src.Read(n.block)
	return n
}

func (n noiseDisk) ReadAt(_ context.Context, p []byte, off int64) error {
	for done := 0; done < len(p); {
		done += copy(p[done:], n.block[(off+int64(done))%int64(len(n.block)):])
	}
	return nil
}

// startBench starts the server and opens its disk.
func startBench(b *testing.B, c benchConfig) (*Source, *Transport) {
	b.Helper()
	conf, err := json.Marshal(c)
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), benchServer+"="+string(conf))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { stdin.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		b.Fatal(err)
	}
	var a benchAddress
	if err := json.Unmarshal(bytes.TrimSpace(line), &a); err != nil {
		b.Fatal(err)
	}
	h := &fakeHost{addr: a.Addr, pinned: a.Cert, size: c.Size, uri: "/folder/vm/disk-flat.vmdk"}
	h.cookie.Store("")
	tr := New(h, Options{})
	b.Cleanup(func() { tr.Close() })
	src, err := tr.Open(b.Context(), testDisk(c.Size))
	if err != nil {
		b.Fatal(err)
	}
	return src, tr
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakMemory returns the peak resident memory of this process, which includes earlier benchmarks.
func peakMemory(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Maxrss) * 1024
}

// BenchmarkPull copies a disk with blockcopy: to Null, and with a manifest into a sparse raw file in TMPDIR, with
// direct I/O if the file system supports it.
func BenchmarkPull(b *testing.B) {
	const size = 2 << 30
	real := benchConfig{Size: size, ConnRate: 55e6, DiskRate: 300e6}
	for _, c := range []struct {
		name string
		conf benchConfig
		file bool
	}{
		{"uncapped", benchConfig{Size: size}, false},
		{"uncapped/file", benchConfig{Size: size}, true},
		{"capped", real, false},
		{"capped/file", real, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			src, tr := startBench(b, c.conf)
			b.SetBytes(size)
			var cpu time.Duration
			for b.Loop() {
				dst, opts := benchTarget(b, c.file, size)
				cpu -= cpuTime(b)
				if _, err := blockcopy.Copy(b.Context(), src, dst, opts); err != nil {
					b.Fatal(err)
				}
				cpu += cpuTime(b)
			}
			copied := float64(b.N) * size
			b.ReportMetric(cpu.Seconds()/(copied/(1<<30)), "cpu-s/GiB")
			b.ReportMetric(float64(tr.pool.wire.Load())/copied, "wire/byte")
			b.ReportMetric(float64(tr.pool.control.want), "conns")
			b.ReportMetric(peakMemory(b)/(1<<20), "peak-MiB")
		})
	}
}

// benchTarget returns Null, or a new image with a manifest.
func benchTarget(b *testing.B, file bool, size int64) (disk.Target, blockcopy.Options) {
	if !file {
		return disk.NewNull(size), blockcopy.Options{}
	}
	dir := b.TempDir()
	image, err := rawfile.Create(filepath.Join(dir, "image"), size, rawfile.Options{})
	if err != nil {
		b.Fatal(err)
	}
	log, err := manifest.Create(filepath.Join(dir, "manifest"), manifest.Info{Disk: "bench", Size: size, Source: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { image.Close(); log.Close() })
	return image, blockcopy.Options{Manifest: log}
}
