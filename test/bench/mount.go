package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/mount"
	"github.com/decamp/decamp/internal/transport/https"
)

const (
	mountShare = 0.9     // share of the limit that each reader must reach
	mountDisk  = 2 << 30 // size of each disk in bytes
	mountFiles = 4       // number of files read at once
	randomDisk = 8 << 30 // size of the disk for random reads
	randomSize = 4 << 10 // bytes per random read
	randomRead = 3000    // number of random reads
)

// mountFigures measures programs that read through decamp mount: with the limits of a
// real host, without limits, several files at once, and at random offsets.
func mountFigures(ctx context.Context, b *bench) error {
	return errors.Join(
		mountCapped(ctx, b),
		mountUncapped(ctx, b),
		mountFair(ctx, b),
		mountRandom(ctx, b),
	)
}

// mountReaders returns the commands of programs that read a file.
func mountReaders(file string) []struct {
	name string
	argv []string
} {
	null := fmt.Sprintf("driver=null-co,size=%d", mountDisk)
	return []struct {
		name string
		argv []string
	}{
		{"dd bs=4M", []string{"dd", "if=" + file, "of=/dev/null", "bs=4M", "status=none"}},
		{"qemu-img convert", []string{"qemu-img", "convert", "-f", "raw", "-n", "--target-image-opts", file, null}},
		{"qemu-img convert -m 16 -W", []string{"qemu-img", "convert", "-m", "16", "-W", "-f", "raw", "-n", "--target-image-opts", file, null}},
	}
}

// mountCapped measures the rate and the memory with the limits of a real host.
func mountCapped(ctx context.Context, b *bench) error {
	m, err := startMount(ctx, b.dir, lab.Limits{ConnRate: connCap, DatastoreRate: datastoreCap}, lab.Disk{Capacity: mountDisk, Fill: 100, Thick: true})
	if err != nil {
		return err
	}
	defer m.unmount()
	for _, reader := range mountReaders(m.filePath(0)) {
		rate, cpu, err := m.repeatReader(ctx, reader.argv)
		if err != nil {
			return err
		}
		row := Row{Figure: "mount capped at 55 MB/s a connection, 300 MB/s a datastore, " + reader.name + ": share of the cap",
			Value: 100 * rate / (datastoreCap / 1e6), Unit: "%",
			Note: fmt.Sprintf("%.0f MB/s, %.2f CPU s/GiB with the reader's", rate, cpu)}
		row.Peers = []Peer{{Name: "Proxmox's importer, its read path rebuilt", Value: 100 * 48 / (datastoreCap / 1e6), Note: "45 to 48 MB/s, measured when this was designed"}}
		b.atLeast(100*mountShare, row)
	}
	u, err := m.readUsage()
	if err != nil {
		return err
	}
	b.atMost(256, Row{Figure: "mount at 300 MB/s: peak memory", Value: float64(u.Peak) / (1 << 20), Unit: "MiB"})
	return nil
}

// mountUncapped measures the processor time without limits.
func mountUncapped(ctx context.Context, b *bench) error {
	m, err := startMount(ctx, b.dir, lab.Limits{}, lab.Disk{Capacity: mountDisk, Fill: 100, Thick: true})
	if err != nil {
		return err
	}
	defer m.unmount()
	for _, reader := range mountReaders(m.filePath(0)) {
		rate, cpu, err := m.repeatReader(ctx, reader.argv)
		if err != nil {
			return err
		}
		row := Row{Figure: "mount uncapped, " + reader.name + ": client CPU, the reader's included", Value: cpu, Unit: "CPU s/GiB",
			Note: fmt.Sprintf("%.0f MB/s with the lab on the same cores", rate)}
		b.atMost(1.3, row)
	}
	u, err := m.readUsage()
	if err != nil {
		return err
	}
	b.atMost(256, Row{Figure: "mount uncapped: peak memory", Value: float64(u.Peak) / (1 << 20), Unit: "MiB"})
	return nil
}

// mountFair reads four files at once for 8 seconds, and compares their progress.
func mountFair(ctx context.Context, b *bench) error {
	disks := slices.Repeat([]lab.Disk{{Capacity: mountDisk, Fill: 100, Thick: true}}, mountFiles)
	m, err := startMount(ctx, b.dir, lab.Limits{ConnRate: connCap, DatastoreRate: datastoreCap}, disks...)
	if err != nil {
		return err
	}
	defer m.unmount()
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	got := make([]float64, mountFiles)
	var readers sync.WaitGroup
	began := time.Now()
	for i := range got {
		readers.Go(func() { got[i] = float64(readUntil(ctx, m.filePath(i))) })
	}
	readers.Wait()
	var sum float64
	for _, n := range got {
		sum += n
	}
	least, most := slices.Min(got), slices.Max(got)
	b.atLeast(0.8, Row{Figure: "mount, 4 files at once: what the slowest reader gets of what the fastest gets", Value: least / most, Unit: "x",
		Note: fmt.Sprintf("together %.0f MB/s of 300", sum/1e6/time.Since(began).Seconds())})
	return nil
}

// readUntil reads a file from its start until ctx ends. It returns the number of bytes.
func readUntil(ctx context.Context, name string) int64 {
	f, err := os.Open(name)
	if err != nil {
		return 0
	}
	defer f.Close()
	b, sum := make([]byte, 1<<20), int64(0)
	for ctx.Err() == nil {
		n, err := f.Read(b)
		sum += int64(n)
		if err != nil {
			break
		}
	}
	return sum
}

// mountRandom measures how many bytes are fetched for a random read of 4 KiB.
func mountRandom(ctx context.Context, b *bench) error {
	m, err := startMount(ctx, b.dir, lab.Limits{}, lab.Disk{Capacity: randomDisk, Fill: 100, Thick: true})
	if err != nil {
		return err
	}
	defer m.unmount()
	// The emulated host counts the bytes that the mount has fetched.
	before, err := m.lab.bytesSent(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := readRandomly(m.filePath(0)); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := m.lab.bytesSent(ctx)
	if err != nil {
		return err
	}
	fetched := float64(after-before) / randomRead
	b.atMost(64, Row{Figure: "mount, random reads of 4 KiB: bytes fetched for each", Value: fetched / (1 << 10), Unit: "KiB",
		Note: fmt.Sprintf("%.1f bytes for each byte asked; %.0f reads a second, one at a time", fetched/randomSize, randomRead/took.Seconds())})
	return nil
}

// readRandomly reads blocks of a file at random offsets, always the same ones.
func readRandomly(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	rnd, p := rand.New(rand.NewPCG(1, 2)), make([]byte, randomSize)
	for range randomRead {
		if _, err := f.ReadAt(p, rnd.Int64N(randomDisk/randomSize)*randomSize); err != nil {
			return err
		}
	}
	return nil
}

// mountedLab is an emulated host, and decamp's mount of it in a separate process.
type mountedLab struct {
	lab   *emulated      // emulated host
	dir   string         // mount point
	cmd   *exec.Cmd      // process of the mount
	stdin io.WriteCloser // a line requests the usage; closing it ends the process
	out   *json.Decoder  // answers of the process
}

// mountJob is the input of childMount.
type mountJob struct {
	Lab labFacts `json:"lab"` // emulated host
	Dir string   `json:"dir"` // mount point
}

// startMount starts an emulated host and mounts it below dir. The caller must unmount
// it.
func startMount(ctx context.Context, dir string, limits lab.Limits, disks ...lab.Disk) (*mountedLab, error) {
	e, err := startLabOf(ctx, disks, limits)
	if err != nil {
		return nil, err
	}
	m := &mountedLab{lab: e, dir: filepath.Join(dir, "mnt")}
	if err := m.startMount(ctx); err != nil {
		m.unmount()
		return nil, fmt.Errorf("start mount: %w", err)
	}
	return m, nil
}

// startMount starts the process of the mount and waits for its first answer.
func (m *mountedLab) startMount(ctx context.Context) error {
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return err
	}
	spec, err := json.Marshal(mountJob{m.lab.facts, m.dir})
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	m.cmd = exec.CommandContext(ctx, self, "child", "mount", string(spec))
	m.cmd.Stderr = os.Stderr
	if m.stdin, err = m.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := m.cmd.Start(); err != nil {
		return err
	}
	m.out = json.NewDecoder(out)
	_, err = m.readUsage()
	return err
}

// unmount ends the process, unmounts the folder even if the process died, and stops the
// host.
func (m *mountedLab) unmount() {
	if m.stdin != nil {
		m.stdin.Close()
		_ = m.cmd.Wait() // its errors are on stderr
	}
	// A mount of a dead process would make later reads of the folder fail.
	_ = unix.Unmount(m.dir, unix.MNT_DETACH) // there is nothing left, unless the process died
	_ = os.Remove(m.dir)
	m.lab.stop()
}

// filePath returns the path of the flat file of disk n, counted from 0.
func (m *mountedLab) filePath(n int) string {
	name := benchVM
	if n > 0 {
		name = fmt.Sprintf("%s_%d", benchVM, n)
	}
	return filepath.Join(m.dir, "ha-datacenter", "datastore1", benchVM, name+"-flat.vmdk")
}

// readUsage returns the resources that the mount's process has used so far.
func (m *mountedLab) readUsage() (t measurement, err error) {
	if _, err := fmt.Fprintln(m.stdin); err != nil {
		return t, err
	}
	return t, m.out.Decode(&t)
}

// runReader runs a reader. The processor time includes that of the mount.
func (m *mountedLab) runReader(ctx context.Context, argv []string) (usage, error) {
	before, err := m.readUsage()
	if err != nil {
		return usage{}, err
	}
	u, err := measureCommand(ctx, argv[0], argv[1:]...)
	if err != nil {
		return usage{}, err
	}
	after, err := m.readUsage()
	// The mount decrypts and hands over the data, so its time belongs to the reader's.
	u.CPU += time.Duration((after.CPU - before.CPU) * float64(time.Second))
	return u, err
}

// repeatReader runs a reader several times. It returns the medians of MB/s and of
// processor seconds per GiB.
func (m *mountedLab) repeatReader(ctx context.Context, argv []string) (rate, cpu float64, err error) {
	return repeatMedian(func() (rate, cpu float64, err error) {
		u, err := m.runReader(ctx, argv)
		return u.rate(mountDisk), u.cpuPerGiB(mountDisk), err
	})
}

// childMount mounts the emulated host until its input ends. It answers each input line
// with its usage.
func childMount(ctx context.Context, args []string) error {
	var job mountJob
	if err := json.Unmarshal([]byte(args[0]), &job); err != nil {
		return err
	}
	host, err := job.Lab.logIn(ctx, "esxi")
	if err != nil {
		return err
	}
	defer host.Close()
	pull := https.New(host, https.Options{})
	defer pull.Close()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	m, err := mount.New(ctx, mount.NewRemote(host, pull, log), job.Dir, mount.Options{Log: log})
	if err != nil {
		return err
	}
	defer m.Close()
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := out.Encode(measurement{CPU: cpuSeconds(), Peak: peakResident()}); err != nil {
			return err
		}
	}
	return nil
}
