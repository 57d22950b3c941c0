package nfs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/manifest"
)

// fioBinary is fio with its engine for NFS, which Debian's lacks: scripts/setup.sh builds it,
// with the patch without which it neither waits for its last requests nor fails without them.
const fioBinary = "../../build/fio"

// fioJob is what fio writes, and then reads to compare.
type fioJob struct {
	args []string
	over bool // writes of it overlap, so that it reads less than it has written
}

// fioJobs are done one after the other on the same file. Each block that is written has its
// place, its length, the number of its random bytes and a sum of all of them in it. fio does
// not know the random numbers of blocks that overlap, which have a pattern instead; those
// are written with a COMMIT after every few, while others are on their way. The first job
// makes the file, which fio does for writes in order only. The last one writes every byte
// of it, once.
var fioJobs = []fioJob{
	{args: []string{"--rw=write", "--bs=64k", "--randseed=1"}},
	{args: []string{"--rw=randwrite", "--bsrange=4k-256k", "--randseed=2", "--norandommap", "--serialize_overlap=1", "--verify_pattern=%o", "--fdatasync=16"}, over: true},
	{args: []string{"--rw=randwrite", "--bsrange=4k-256k", "--randseed=3"}},
}

// lastFioJob is what the file holds in the end.
var lastFioJob = fioJobs[len(fioJobs)-1]

// fioDisk is a file that fio writes over NFS.
type fioDisk struct {
	url  string // of its folder
	name string
	size int64
	path string // where its bytes are at any time; "" if they are on their way
}

// overNFS are the arguments with which fio reaches it as a client, 8 requests in flight.
func (d fioDisk) overNFS() []string {
	return []string{"--ioengine=nfs", "--nfs_url=" + d.url, "--filename=" + d.name, "--iodepth=8"}
}

// onDisk are those with which it reads what came of it, without NFS.
func onDisk(path string) []string { return []string{"--ioengine=psync", "--filename=" + path} }

// exercise does all jobs: fio writes and compares, another fio that has not written compares
// over NFS, and one more on the disk; in make test after the last job.
func (d fioDisk) exercise(ctx context.Context) error {
	for i, j := range fioJobs {
		if err := j.run(ctx, d.size, d.overNFS()...); err != nil {
			return err
		}
		if !slow && i < len(fioJobs)-1 {
			continue
		}
		if err := j.compare(ctx, d.size, d.overNFS()...); err != nil {
			return err
		}
		if d.path == "" {
			continue
		}
		if err := j.compare(ctx, d.size, onDisk(d.path)...); err != nil {
			return err
		}
	}
	return nil
}

// compare has fio make up again what it wrote, and compare that with what it reads.
func (j fioJob) compare(ctx context.Context, size int64, where ...string) error {
	return j.run(ctx, size, append(where, "--verify_only")...)
}

// run runs fio, and fails unless it has read all it should.
func (j fioJob) run(ctx context.Context, size int64, where ...string) error {
	args := append([]string{"--name=disk", fmt.Sprintf("--size=%d", size)}, where...)
	args = append(args, j.args...)
	if j.over {
		args = append(args, fmt.Sprintf("--io_size=%d", 2*size))
	}
	r, err := fio(ctx, args...)
	if err != nil {
		return err
	}
	wrong := r.Write.Bytes != size || r.Read.Bytes != size
	if j.over { // how much lies under other writes is for chance to say: about a half
		wrong = r.Write.Bytes < 2*size || r.Read.Bytes < size/8
	}
	if wrong {
		return fmt.Errorf("fio %s: %d bytes written and %d read of a file of %d", strings.Join(args, " "), r.Write.Bytes, r.Read.Bytes, size)
	}
	return nil
}

// fioResult is what fio says of a job. With --verify_only nothing is written, and counted
// all the same.
type fioResult struct {
	Error       int
	Read, Write struct {
		Bytes int64 `json:"io_bytes"`
	}
}

// Bounds on fio when it gives up, or is given up.
const (
	fioDelay = 10 * time.Second // until a process of a job ends, that fio has left behind
	fioWords = 4 << 10          // of its complaints, which it may repeat for ever
)

// fio runs one job, in a process group of its own: when a job does not start, fio ends its
// group. With fio ends the process of a job over NFS, see scripts/fio-nfs.patch.
func fio(ctx context.Context, args ...string) (fioResult, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	args = append(args, "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--output-format=json")
	cmd := exec.CommandContext(ctx, fioBinary, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = fioDelay
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	r := fioResult{}
	if err == nil {
		r, err = fioSays(out)
	}
	if err != nil {
		return r, fmt.Errorf("fio %s: %w\n%.*s", strings.Join(args, " "), err, fioWords, errs.String())
	}
	return r, nil
}

// fioSays reads what fio prints, which may begin with warnings.
func fioSays(out []byte) (fioResult, error) {
	var said struct{ Jobs []fioResult }
	if err := json.Unmarshal(out[max(bytes.IndexByte(out, '{'), 0):], &said); err != nil {
		return fioResult{}, err
	}
	if len(said.Jobs) != 1 || said.Jobs[0].Error != 0 {
		return fioResult{}, fmt.Errorf("%+v", said.Jobs)
	}
	return said.Jobs[0], nil
}

// Sizes of what fio writes: to decamp land, all of which Wireshark looks at, and to a
// landing, where it is more than its memory.
const (
	fioFile   = 8 << 20
	fioLanded = landingMemory + landingMemory/2
)

// fio is one of the clients of TestClientsOfOthers. It finds a byte that is wrong, and the
// last one just as well.
func (c *clients) fio(t *testing.T) {
	d := fioDisk{url: c.url(""), name: "fio-flat.vmdk", size: fioFile, path: filepath.Join(c.dir, "fio-flat.vmdk")}
	must(t, d.exercise(t.Context()))
	for _, off := range []int64{0, d.size / 3, d.size - 1} {
		flip(t, d.path, off)
		err := lastFioJob.compare(t.Context(), d.size, d.overNFS()...)
		if err == nil || !strings.Contains(err.Error(), "at file "+d.name+" offset ") {
			t.Errorf("byte %d is wrong, and fio says: %v", off, err)
		}
		flip(t, d.path, off)
	}
	must(t, lastFioJob.compare(t.Context(), d.size, d.overNFS()...))
}

// flip changes a byte of a file.
func flip(t *testing.T, path string, off int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	var b [1]byte
	_, err = f.ReadAt(b[:], off)
	must(t, err)
	b[0] ^= 1
	_, err = f.WriteAt(b[:], off)
	must(t, err)
}

// fioHost is a host on which fio stands in for vmkfstools.
type fioHost struct {
	at   // its addresses
	size int64
	url  string
}

// MountNAS is part of landing.Host.
func (h *fioHost) MountNAS(_ context.Context, _ inventory.MoRef, n esx.NAS) (string, bool, error) {
	h.url = fmt.Sprintf("nfs://%s%s?nfsport=%s&mountport=%s", n.Server, n.Path, nfsPort, nfsPort)
	return n.Name, true, nil
}

// UnmountNAS is part of landing.Host.
func (h *fioHost) UnmountNAS(context.Context, inventory.MoRef, esx.NAS) error { return nil }

// CopyDisk is part of landing.Host.
func (h *fioHost) CopyDisk(ctx context.Context, c esx.DiskCopy) error {
	flat := strings.TrimSuffix(path.Clean(c.To.File), ".vmdk") + "-flat.vmdk"
	return fioDisk{url: h.url, name: flat, size: h.size}.exercise(ctx)
}

// fio writes a disk that lands, over and over and with what it reads in between, and finds
// in the image what it wrote last. The image is what its manifest says.
func TestFioLands(t *testing.T) {
	requires(t, fioBinary, "qemu-img")
	for _, format := range []image.Format{image.Raw, image.QCOW2} {
		if format == image.Raw && !slow {
			continue // the tests that kill the server land raw images
		}
		t.Run(string(format), func(t *testing.T) {
			o := orders{Dir: t.TempDir(), Names: t.TempDir(), Format: format, Size: fioLanded, Address: address(t)}
			must(t, o.land(t.Context(), o.job(), &fioHost{size: o.Size}, asItIs))
			_, err := o.job().Verify(t.Context(), manifest.VerifyOptions{NoSums: true})
			must(t, err)
			raw := filepath.Join(t.TempDir(), "raw")
			mustRun(t, "qemu-img", "convert", "-f", string(format), "-O", "raw", o.job().Path, raw)
			must(t, lastFioJob.compare(t.Context(), o.Size, onDisk(raw)...))
		})
	}
}
