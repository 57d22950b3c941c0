package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/lab"
)

// Limits of the figures of this part.
const (
	nbdShare   = 95   // percent of the host's limit that nbdcopy must reach
	nbdRead    = 1.02 // bytes read from the host for each allocated byte
	nbdCPU     = 0.6  // processor seconds per GiB, those of nbdcopy included
	nbdMemory  = 64   // MiB of one export
	nbdRandom  = 0.8  // random reads of one session of the NFC client alone
	nbdExports = 4    // exports of one server that are read at once
)

// Sizes of the disks. That of a single session and of the peers is smaller, because their rates are
// constant from the first second.
const (
	nbdDisk     = 4 << 30   // size of the disk for several sessions, in bytes
	nbdPeerDisk = 512 << 20 // size of the disk for one session and for peers, in bytes
	nbdRuns     = 3         // rounds of each figure; odd, because the median counts
)

// nbdPatience limits the time from the start of a server until it serves.
const nbdPatience = time.Minute

// nbdFigures measures nbdcopy and other clients of decamp nbd and of nbdkit with the plugin nfc, with
// emulated hosts: with the limits of a real host, without limits, with a sparse disk and at random
// offsets.
func nbdFigures(ctx context.Context, b *bench) error {
	if err := requirePrograms("nbdkit", "nbdcopy", "nbdinfo"); err != nil {
		return err
	}
	d, err := b.newWorkspace(ctx)
	if err != nil {
		return err
	}
	defer d.remove()
	bed := &nbdBed{workspace: d, plugin: filepath.Join(d.dir, "nbdkit-nfc-plugin.so")}
	if out, err := exec.CommandContext(ctx, "scripts/nbdkit-plugin.sh", bed.plugin).CombinedOutput(); err != nil {
		return fmt.Errorf("build the plugin: %w: %s", err, lastLine(string(out)))
	}
	return errors.Join(
		bed.measureNFC(ctx, b),
		bed.measureHTTPS(ctx, b),
		bed.measureSparse(ctx, b),
		bed.measureCPU(ctx, b),
		bed.measureRandom(ctx, b),
		bed.measureMemory(ctx, b),
	)
}

// nbdBed has the programs that serve NBD.
type nbdBed struct {
	*workspace
	plugin string // path of the plugin nfc of nbdkit
}

// nbdSide is a program that serves the disks of an emulated host over NBD.
type nbdSide struct {
	name   string   // name in the table
	nbdkit bool     // nbdkit with the plugin nfc, otherwise decamp nbd
	args   []string // further arguments
}

// The programs.
var (
	nbdDecampNFC   = nbdSide{name: "decamp nbd", args: []string{"--transport", "nfc", "--nfc-plain"}}
	nbdDecampTLS   = nbdSide{name: "decamp nbd", args: []string{"--transport", "nfc"}}
	nbdDecampHTTPS = nbdSide{name: "decamp nbd", args: []string{"--transport", "https"}}
	nbdPlugin      = nbdSide{name: "nbdkit nfc", nbdkit: true, args: []string{"plain=true"}}
	nbdPluginTLS   = nbdSide{name: "nbdkit nfc", nbdkit: true}
	nbdOneSession  = nbdSide{name: "nbdkit nfc, one session", nbdkit: true, args: []string{"connections=1"}}
)

// nbdServer is a running server.
type nbdServer struct {
	*program
	uri   string // URI of the first disk
	dir   string // folder of the socket
	ready int64  // resident memory in bytes before the first client read
}

// startNBD starts a server for an emulated host and waits until it serves.
func (d *nbdBed) startNBD(ctx context.Context, e *emulated, side nbdSide) (*nbdServer, error) {
	dir, err := os.MkdirTemp(d.dir, "nbd")
	if err != nil {
		return nil, err
	}
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte(e.facts.Password), 0o600); err != nil {
		return nil, err
	}
	line := append([]string{d.decamp, "nbd", "esxi://" + e.facts.User + "@" + e.facts.Addr, benchVM, "--fingerprint", e.facts.Fingerprint,
		"--password-file", password, "--state", d.stateDir(), "--socket", dir}, side.args...)
	if side.nbdkit {
		if line, err = d.nbdkitLine(ctx, e, dir, password); err != nil {
			return nil, err
		}
		line = append(line, side.args...)
	}
	return d.startServer(ctx, dir, side.name, line)
}

// startServer starts a command that serves NBD on the socket nbd.sock of dir, and waits until it serves.
func (d *nbdBed) startServer(ctx context.Context, dir, name string, line []string) (s *nbdServer, err error) {
	s = &nbdServer{dir: dir, uri: "nbd+unix:///?socket=" + filepath.Join(dir, "nbd.sock")}
	if s.program, err = d.startCommand(ctx, nil, line); err != nil {
		return nil, err
	}
	err = s.waitUntil(ctx, nbdPatience, name+" serves", func() (bool, error) {
		return exec.CommandContext(ctx, "nbdinfo", "--size", s.uri).Run() == nil, nil
	})
	if err != nil {
		s.stop()
		return nil, err
	}
	s.ready, _ = s.memoryBytes()
	return s, nil
}

// nbdkitLine returns the command of nbdkit, as virt-v2v starts it, without filters.
func (d *nbdBed) nbdkitLine(ctx context.Context, e *emulated, dir, password string) ([]string, error) {
	host, err := e.facts.logIn(ctx, "esxi")
	if err != nil {
		return nil, err
	}
	defer host.Close()
	vm, err := host.VM(ctx, benchVM)
	if err != nil {
		return nil, err
	}
	name, port, err := net.SplitHostPort(e.facts.Addr)
	if err != nil {
		return nil, err
	}
	return []string{"nbdkit", "-f", "-r", "-U", filepath.Join(dir, "nbd.sock"), d.plugin, "server=" + name, "port=" + port, "insecure=true",
		"thumbprint=" + e.facts.Fingerprint, "user=" + e.facts.User, "password=+" + password, "vm=moref=" + string(vm.Ref), "file=" + vm.Disks[0].Path.String()}, nil
}

// stop ends the server and removes its files.
func (s *nbdServer) stop() {
	s.program.stop()
	os.RemoveAll(s.dir)
}

// grown returns by how much the resident memory has grown since the server was ready, in bytes.
func (s *nbdServer) grown() int64 {
	_, peak := s.memoryBytes()
	return peak - s.ready
}

// nbdCopy is a copy by nbdcopy.
type nbdCopy struct {
	usage                // resources of nbdcopy; the processor time includes that of the server
	server time.Duration // processor time of the server
	grown  int64         // bytes by which the memory of the server has grown
}

// copyOnce starts a server, copies its first disk to null by nbdcopy with its default options, and stops
// the server.
func (d *nbdBed) copyOnce(ctx context.Context, e *emulated, side nbdSide) (c nbdCopy, err error) {
	s, err := d.startNBD(ctx, e, side)
	if err != nil {
		return c, err
	}
	defer s.stop()
	before := s.cpuSeconds()
	if c.usage, err = measureCommand(ctx, "nbdcopy", s.uri, "null:"); err != nil {
		return c, fmt.Errorf("%w; the server: %s", err, s.lastWords())
	}
	c.server, c.grown = time.Duration((s.cpuSeconds()-before)*float64(time.Second)), s.grown()
	c.CPU += c.server
	return c, nil
}

// nbdRates are the figures of one program in all rounds: MB/s, and processor seconds per GiB of both
// programs and of the server alone.
type nbdRates struct{ rates, cpus, servers []float64 }

// add adds a copy of this number of bytes.
func (r *nbdRates) add(c nbdCopy, bytes int64) {
	r.rates, r.cpus = append(r.rates, c.rate(bytes)), append(r.cpus, c.cpuPerGiB(bytes))
	r.servers = append(r.servers, usage{CPU: c.server}.cpuPerGiB(bytes))
}

// note returns the medians as text.
func (r *nbdRates) note() string {
	return fmt.Sprintf("%.0f MB/s, %.2f CPU s/GiB with nbdcopy's", median(r.rates), median(r.cpus))
}

// copyPattern runs nbdcopy from a server that computes its data.
func copyPattern(ctx context.Context) (usage, error) {
	return measureCommand(ctx, "nbdkit", "-U", "-", "pattern", formatInt(nbdDisk), "--run", `nbdcopy "$uri" null:`)
}

// measureNFC measures nbdcopy with the limits of a real host. The programs take turns.
func (d *nbdBed) measureNFC(ctx context.Context, b *bench) error {
	caps := lab.NFC{SessionRate: handleCap, HostRate: hostCap}
	e, err := nfcLab(ctx, lab.Disk{Capacity: nbdDisk, Fill: 100, Thick: true}, caps)
	if err != nil {
		return err
	}
	defer e.stop()
	small, err := nfcLab(ctx, lab.Disk{Capacity: nbdPeerDisk, Fill: 100, Thick: true}, caps)
	if err != nil {
		return err
	}
	defer small.stop()
	pattern, err := copyPattern(ctx)
	if err != nil {
		return err
	}
	sides := []nbdSide{nbdDecampNFC, nbdPlugin, nbdOneSession}
	all := make([]nbdRates, len(sides))
	var alone []float64
	for range nbdRuns {
		for i, side := range sides {
			from, bytes := e, int64(nbdDisk)
			if i == 2 {
				from, bytes = small, nbdPeerDisk
			}
			c, err := d.copyOnce(ctx, from, side)
			if err != nil {
				return err
			}
			all[i].add(c, bytes)
		}
		t, err := pullNFC(ctx, e, 1, nfcJob{Plain: true})
		if err != nil {
			return err
		}
		alone = append(alone, t.rate())
	}
	const share = 100 / (hostCap / 1e6) // percent of the limit for each MB/s
	peers := []Peer{
		{Name: nbdOneSession.name + ", as VDDK tools have", Value: share * median(all[2].rates), Note: all[2].note()},
		{Name: "the NFC client alone, to null", Value: share * median(alone), Note: fmt.Sprintf("%.0f MB/s", median(alone))},
		{Name: "nbdcopy alone, from nbdkit pattern", Value: share * pattern.rate(nbdDisk), Note: fmt.Sprintf("%.0f MB/s", pattern.rate(nbdDisk))},
	}
	for i := range sides[:2] {
		b.atLeast(nbdShare, Row{Figure: "nbdcopy to null from " + sides[i].name + ", nfc capped at 142 MB/s a session and 505 MB/s a host: share of the host's cap",
			Value: share * median(all[i].rates), Unit: "%", Note: "in clear, " + all[i].note(), Peers: peers})
	}
	return nil
}

// nbdPeers are servers of other projects for a file of an ESXi host.
var nbdPeers = []httpPeer{
	{"nbdkit curl", []string{"curl"}, "as shipped", func(e *emulated, _ string) []string {
		return []string{"nbdkit", "-U", "-", "curl", e.diskURL(), "sslverify=false", e.cookieScript(), "--run", `nbdcopy "$uri" null:`}
	}},
	{"nbdkit curl, 8 threads, multi-conn unsafe, requests of 4 MiB", []string{"curl"}, "tuned by hand", func(e *emulated, _ string) []string {
		return []string{"nbdkit", "-U", "-", "--threads=8", "--filter=multi-conn", "curl", e.diskURL(), "sslverify=false", e.cookieScript(), "multi-conn-mode=unsafe",
			"--run", `nbdcopy --threads=8 --connections=8 --request-size=4194304 "$uri" null:`}
	}},
	{"nbdkit curl, filters cache and readahead", []string{"curl"}, "tuned by hand", func(e *emulated, _ string) []string {
		return []string{"nbdkit", "-U", "-", "--filter=readahead", "--filter=cache", "curl", e.diskURL(), "sslverify=false", e.cookieScript(), "cache-on-read=true",
			"--run", `nbdcopy "$uri" null:`}
	}},
}

// measureHTTPS measures nbdcopy over https with the limits of a real host. The programs take turns.
func (d *nbdBed) measureHTTPS(ctx context.Context, b *bench) error {
	limits := lab.Limits{ConnRate: connCap, DatastoreRate: datastoreCap}
	e, err := startLab(ctx, lab.Disk{Capacity: nbdDisk, Fill: 100, Thick: true}, limits)
	if err != nil {
		return err
	}
	defer e.stop()
	small, err := startLab(ctx, lab.Disk{Capacity: nbdPeerDisk, Fill: 100, Thick: true}, limits)
	if err != nil {
		return err
	}
	defer small.stop()
	var own nbdRates
	peers := make([]nbdRates, len(nbdPeers))
	var alone []float64
	for range nbdRuns {
		c, err := d.copyOnce(ctx, e, nbdDecampHTTPS)
		if err != nil {
			return err
		}
		own.add(c, nbdDisk)
		for i, p := range nbdPeers {
			if err := requirePrograms(p.needs...); err != nil {
				return err
			}
			argv := p.argv(small, d.dir)
			u, err := measureCommand(ctx, argv[0], argv[1:]...)
			if err != nil {
				return err
			}
			peers[i].add(nbdCopy{usage: u}, nbdPeerDisk)
		}
		t, err := pullHTTPS(ctx, e, pullJob{})
		if err != nil {
			return err
		}
		alone = append(alone, t.rate())
	}
	const share = 100 / (datastoreCap / 1e6) // percent of the limit for each MB/s
	row := Row{Figure: "nbdcopy to null from decamp nbd, https capped at 55 MB/s a connection and 300 MB/s a datastore: share of the cap",
		Value: share * median(own.rates), Unit: "%", Note: own.note()}
	for i, p := range nbdPeers {
		row.Peers = append(row.Peers, Peer{Name: p.name, Value: share * median(peers[i].rates), Note: p.note + "; " + peers[i].note()})
	}
	row.Peers = append(row.Peers, Peer{Name: "the https client alone, to null", Value: share * median(alone), Note: fmt.Sprintf("%.0f MB/s", median(alone))})
	b.atLeast(nbdShare, row)
	return nil
}

// measureSparse compares the bytes that the host sends with the allocated bytes of a disk with 25 % data.
func (d *nbdBed) measureSparse(ctx context.Context, b *bench) error {
	e, err := startLab(ctx, lab.Disk{Capacity: 8 << 30, Fill: 25, Seed: 1}, lab.Limits{})
	if err != nil {
		return err
	}
	defer e.stop()
	for _, f := range []struct {
		transport string
		side      nbdSide
	}{{"nfc", nbdDecampNFC}, {"https", nbdDecampHTTPS}, {"nfc", nbdPluginTLS}} {
		before, err := e.facts.readStats(ctx)
		if err != nil {
			return err
		}
		c, err := d.copyOnce(ctx, e, f.side)
		if err != nil {
			return err
		}
		after, err := e.facts.readStats(ctx)
		if err != nil {
			return err
		}
		read := after.NFC.ReadBytes - before.NFC.ReadBytes + after.BodyBytes - before.BodyBytes
		b.atMost(nbdRead, Row{Figure: "nbdcopy from " + f.side.name + " over " + f.transport + ", a quarter of the disk allocated: bytes read from the host",
			Value: float64(read) / float64(e.facts.Allocated), Unit: "x allocated",
			Note: fmt.Sprintf("%.2f of %.0f GiB allocated, %.1f s", float64(e.facts.Allocated)/(1<<30), float64(e.facts.Size)/(1<<30), c.Wall.Seconds())})
	}
	return nil
}

// measureCPU measures the processor time of server and nbdcopy without limits. The programs take turns.
func (d *nbdBed) measureCPU(ctx context.Context, b *bench) error {
	e, err := nfcLab(ctx, lab.Disk{Capacity: nbdDisk, Fill: 100, Thick: true}, lab.NFC{})
	if err != nil {
		return err
	}
	defer e.stop()
	sides := []nbdSide{nbdDecampNFC, nbdPlugin, nbdDecampTLS, nbdPluginTLS}
	all := make([]nbdRates, len(sides))
	var alone, patterns []float64
	for range nbdRuns {
		for i, side := range sides {
			c, err := d.copyOnce(ctx, e, side)
			if err != nil {
				return err
			}
			all[i].add(c, nbdDisk)
		}
		t, err := pullNFC(ctx, e, 1, nfcJob{Plain: true})
		if err != nil {
			return err
		}
		alone = append(alone, t.cpuPerGiB())
		pattern, err := copyPattern(ctx)
		if err != nil {
			return err
		}
		patterns = append(patterns, pattern.cpuPerGiB(nbdDisk))
	}
	row := func(i int, wire string) Row {
		return Row{Figure: "nbdcopy to null from " + sides[i].name + ", nfc uncapped, " + wire + ": client CPU, nbdcopy's included",
			Value: median(all[i].cpus), Unit: "CPU s/GiB", Note: fmt.Sprintf("%.2f of it the server's; %.0f MB/s with the lab on the same cores", median(all[i].servers), median(all[i].rates))}
	}
	for i := range sides[:2] {
		clear := row(i, "in clear")
		clear.Peers = []Peer{{Name: "the NFC client alone, to null", Value: median(alone)}, {Name: "nbdkit pattern + nbdcopy", Value: median(patterns), Note: "both programs"}}
		b.atMost(nbdCPU, clear)
	}
	b.addRow(row(2, "over TLS"))
	b.addRow(row(3, "over TLS"))
	return nil
}

// measureMemory measures by how much the memory of a server grows while nbdcopy reads its disks: one,
// and several at once.
func (d *nbdBed) measureMemory(ctx context.Context, b *bench) error {
	disk := lab.Disk{Capacity: 1 << 30, Fill: 100, Thick: true}
	for _, side := range []nbdSide{nbdDecampNFC, nbdDecampHTTPS, nbdPluginTLS} {
		e, err := startLab(ctx, disk, lab.Limits{})
		if err != nil {
			return err
		}
		c, err := d.copyOnce(ctx, e, side)
		e.stop()
		if err != nil {
			return err
		}
		b.atMost(nbdMemory, Row{Figure: "nbdcopy from " + strings.Join(append([]string{side.name}, side.args...), " ") + ": memory of one export",
			Value: float64(c.grown) / (1 << 20), Unit: "MiB", Note: "largest resident memory of the server minus that before the first read"})
	}
	return d.measureExports(ctx, b, disk)
}

// measureExports measures the memory of a server of several disks that are read at once.
func (d *nbdBed) measureExports(ctx context.Context, b *bench, disk lab.Disk) error {
	disks := make([]lab.Disk, nbdExports)
	for i := range disks {
		disks[i] = disk
	}
	e, err := startLabOf(ctx, disks, lab.Limits{})
	if err != nil {
		return err
	}
	defer e.stop()
	s, err := d.startNBD(ctx, e, nbdDecampNFC)
	if err != nil {
		return err
	}
	defer s.stop()
	host, err := e.facts.logIn(ctx, "esxi")
	if err != nil {
		return err
	}
	defer host.Close()
	vm, err := host.VM(ctx, benchVM)
	if err != nil {
		return err
	}
	var copies sync.WaitGroup
	errs := make([]error, nbdExports)
	for i := range vm.Disks {
		uri := strings.Replace(s.uri, "///", fmt.Sprintf("///disk-%d", vm.Disks[i].Key), 1)
		copies.Go(func() { _, errs[i] = measureCommand(ctx, "nbdcopy", uri, "null:") })
	}
	copies.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	b.atMost(nbdMemory, Row{Figure: fmt.Sprintf("nbdcopy from decamp nbd, %d exports at once over nfc: memory of each", nbdExports),
		Value: float64(s.grown()) / nbdExports / (1 << 20), Unit: "MiB"})
	return nil
}
