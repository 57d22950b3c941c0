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

// fioBinary is fio with the NFS engine, which Debian does not build. scripts/setup.sh builds it with a patch:
// without the patch fio neither waits for its last requests nor fails if they are missing.
const fioBinary = "../../build/fio"

// fioJob is a set of writes that fio makes, and then reads and compares.
type fioJob struct {
	args []string
	over bool // writes overlap, so that fio reads fewer bytes than it writes
}

// fioJobs run one after the other on the same file. Each written block holds its offset, its length, its random
// seed and a checksum. fio does not know the random numbers of overlapping blocks, so these have a pattern
// instead. The overlapping job sends a COMMIT every 16 writes while other writes are in flight. The first job
// creates the file, which fio does only for sequential writes. The last job writes every byte of the file once.
var fioJobs = []fioJob{
	{args: []string{"--rw=write", "--bs=64k", "--randseed=1"}},
	{args: []string{"--rw=randwrite", "--bsrange=4k-256k", "--randseed=2", "--norandommap", "--serialize_overlap=1", "--verify_pattern=%o", "--fdatasync=16"}, over: true},
	{args: []string{"--rw=randwrite", "--bsrange=4k-256k", "--randseed=3"}},
}

// lastFioJob is the job whose content the file has at the end.
var lastFioJob = fioJobs[len(fioJobs)-1]

// fioDisk is a file that fio writes over NFS.
type fioDisk struct {
	url  string // URL of its folder
	name string
	size int64
	path string // local path of the file; "" if the content reaches it only after the jobs
}

// nfsArgs returns the arguments of fio for access over NFS, with 8 requests in flight.
func (d fioDisk) nfsArgs() []string {
	return []string{"--ioengine=nfs", "--nfs_url=" + d.url, "--filename=" + d.name, "--iodepth=8"}
}

// diskArgs returns the arguments of fio for direct access to a local file.
func diskArgs(path string) []string { return []string{"--ioengine=psync", "--filename=" + path} }

// runJobs runs all jobs: fio writes and compares, a second fio compares over NFS, and a third compares the
// local file. Without -tags slow the second and the third run only after the last job.
func (d fioDisk) runJobs(ctx context.Context) error {
	for i, j := range fioJobs {
		if err := j.runOn(ctx, d.size, d.nfsArgs()...); err != nil {
			return err
		}
		if !slow && i < len(fioJobs)-1 {
			continue
		}
		if err := j.compareOn(ctx, d.size, d.nfsArgs()...); err != nil {
			return err
		}
		if d.path == "" {
			continue
		}
		if err := j.compareOn(ctx, d.size, diskArgs(d.path)...); err != nil {
			return err
		}
	}
	return nil
}

// compareOn has fio generate the content of the job again and compare it with the file.
func (j fioJob) compareOn(ctx context.Context, size int64, where ...string) error {
	return j.runOn(ctx, size, append(where, "--verify_only")...)
}

// runOn runs fio, and fails unless it has written and read the expected number of bytes.
func (j fioJob) runOn(ctx context.Context, size int64, where ...string) error {
	args := append([]string{"--name=disk", fmt.Sprintf("--size=%d", size)}, where...)
	args = append(args, j.args...)
	if j.over {
		args = append(args, fmt.Sprintf("--io_size=%d", 2*size))
	}
	r, err := runFio(ctx, args...)
	if err != nil {
		return err
	}
	wrong := r.Write.Bytes != size || r.Read.Bytes != size
	if j.over { // random: about half of the bytes are overwritten
		wrong = r.Write.Bytes < 2*size || r.Read.Bytes < size/8
	}
	if wrong {
		return fmt.Errorf("fio %s: %d bytes written and %d read of a file of %d", strings.Join(args, " "), r.Write.Bytes, r.Read.Bytes, size)
	}
	return nil
}

// fioResult is the result of a job. With --verify_only fio counts writes but does not make them.
type fioResult struct {
	Error       int
	Read, Write struct {
		Bytes int64 `json:"io_bytes"`
	}
}

// Limits for a fio that fails or is killed.
const (
	fioDelay       = 10 * time.Second // wait for processes of a job that fio has left running
	fioStderrLimit = 4 << 10          // bytes of its error output in the message, because fio may repeat errors forever
)

// runFio runs one job in a separate process group, because fio kills its group if a job does not start. The
// process of a job over NFS ends with fio, see scripts/fio-nfs.patch.
func runFio(ctx context.Context, args ...string) (fioResult, error) {
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
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
		r, err = parseFioOutput(out)
	}
	if err != nil {
		return r, fmt.Errorf("fio %s: %w\n%.*s", strings.Join(args, " "), err, fioStderrLimit, errs.String())
	}
	return r, nil
}

// parseFioOutput parses the output of fio, which may begin with warnings.
func parseFioOutput(out []byte) (fioResult, error) {
	var output struct{ Jobs []fioResult }
	if err := json.Unmarshal(out[max(bytes.IndexByte(out, '{'), 0):], &output); err != nil {
		return fioResult{}, err
	}
	if len(output.Jobs) != 1 || output.Jobs[0].Error != 0 {
		return fioResult{}, fmt.Errorf("%+v", output.Jobs)
	}
	return output.Jobs[0], nil
}

// Sizes of the files that fio writes to decamp land, whose traffic Wireshark checks, and to a landing, whose
// memory is smaller than the file.
const (
	fioFile   = 8 << 20
	fioLanded = landingMemory + landingMemory/2
)

// testFio checks that the jobs of fio succeed, and that fio finds a single wrong byte, including the last one.
func (c *foreignClients) testFio(t *testing.T) {
	d := fioDisk{url: c.url(""), name: "fio-flat.vmdk", size: fioFile, path: filepath.Join(c.dir, "fio-flat.vmdk")}
	must(t, d.runJobs(t.Context()))
	for _, off := range []int64{0, d.size / 3, d.size - 1} {
		flipByte(t, d.path, off)
		err := lastFioJob.compareOn(t.Context(), d.size, d.nfsArgs()...)
		if err == nil || !strings.Contains(err.Error(), "at file "+d.name+" offset ") {
			t.Errorf("byte %d is wrong, got error %v from fio, want one with its offset", off, err)
		}
		flipByte(t, d.path, off)
	}
	must(t, lastFioJob.compareOn(t.Context(), d.size, d.nfsArgs()...))
}

// flipByte changes a byte of a file.
func flipByte(t *testing.T, path string, off int64) {
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

// fioHost is a host that copies disks with fio instead of vmkfstools.
type fioHost struct {
	landingHost // provides HostAddresses and SnapshotDisk
	size        int64
	url         string
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
	return fioDisk{url: h.url, name: flat, size: h.size}.runJobs(ctx)
}

// fio writes a disk several times through a landing and compares it after each job. The image has the
// content of the last job, and verifies against its manifest.
func TestLandingOfFioWrites(t *testing.T) {
	requireTools(t, fioBinary, "qemu-img")
	for _, format := range []image.Format{image.Raw, image.QCOW2} {
		if format == image.Raw && !slow {
			continue // the tests that kill the server land raw images
		}
		t.Run(string(format), func(t *testing.T) {
			o := victimOrders{Dir: t.TempDir(), Names: t.TempDir(), Format: format, Size: fioLanded, Address: testAddress(t)}
			must(t, o.landDisk(t.Context(), o.imageJob(), &fioHost{size: o.Size}, sameTarget))
			_, err := o.imageJob().Verify(t.Context(), manifest.VerifyOptions{NoSums: true})
			must(t, err)
			raw := filepath.Join(t.TempDir(), "raw")
			mustRunTool(t, "qemu-img", "convert", "-f", string(format), "-O", "raw", o.imageJob().Path, raw)
			must(t, lastFioJob.compareOn(t.Context(), o.Size, diskArgs(raw)...))
		})
	}
}
