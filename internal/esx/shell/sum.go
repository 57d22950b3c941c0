package shell

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"path"
	"strconv"

	"github.com/decamp/decamp/internal/fault"
)

// Sum is the hash of a file.
type Sum struct {
	Algorithm string `json:"algorithm"` // sha256 or md5
	Hex       string `json:"hex"`       // lower-case hex digits
}

// hashCommands lists commands that hash a file, best first, with the size of their hash
// in bytes. The busybox of each host has md5sum; sha256sum depends on the version.
// openssl is on all hosts.
var hashCommands = []struct {
	algorithm string
	size      int
	argv      []string
}{
	{"sha256", 32, []string{"sha256sum"}},
	{"sha256", 32, []string{"openssl", "dgst", "-sha256"}},
	{"md5", 16, []string{"md5sum"}},
}

// Sum hashes a file on the host, by its absolute path, with the best available command.
// It reads the whole file, which may take hours, so it runs as a job with that name. A
// file whose size is not size bytes is fault.Unsupported.
func (s *Shell) Sum(ctx context.Context, name, file string, size int64) (Sum, error) {
	err := s.checkSize(ctx, file, size)
	if err != nil {
		return Sum{}, fmt.Errorf("hash %s on %s: %w", file, s.cfg.Addr, err)
	}
	sum, err := s.hashFile(ctx, name, file)
	if err != nil {
		return Sum{}, fmt.Errorf("hash %s on %s: %w", file, s.cfg.Addr, err)
	}
	return sum, nil
}

// checkSize returns an error unless the file has size bytes.
func (s *Shell) checkSize(ctx context.Context, file string, size int64) error {
	out, err := s.Run(ctx, "stat", "-c", "%s", file)
	if err != nil {
		return err
	}
	if err := out.Err(); err != nil {
		return fault.New(fault.NotFound, "%w", err).WithHint("check that the file exists on the host")
	}
	got, err := strconv.ParseInt(string(bytes.TrimSpace(out.Stdout)), 10, 64)
	if err != nil {
		return fault.New(fault.Corrupt, "its size is %.40q", out.Stdout)
	}
	// A file with another size does not contain the bytes of the disk.
	if got != size {
		return fault.New(fault.Unsupported, "it has %d bytes, the disk %d: it does not contain exactly the disk", got, size).
			WithHint("omit --source-hash; --spot compares a part of the disk")
	}
	return nil
}

// hashFile does the work of Sum without the context of errors.
func (s *Shell) hashFile(ctx context.Context, name, file string) (Sum, error) {
	if !path.IsAbs(file) {
		return Sum{}, fault.New(fault.Internal, "%q is no absolute path", file)
	}
	for _, by := range hashCommands {
		// The shell's status is 0 in both cases, so errors are real ones.
		out, err := s.runShell(ctx, `if command -v "$1" >/dev/null; then echo yes; fi`, by.argv[0])
		if err != nil {
			return Sum{}, err
		}
		if len(out.Stdout) == 0 {
			continue
		}
		res, err := s.Jobs.Do(ctx, Job{Name: name, Argv: append(by.argv[:len(by.argv):len(by.argv)], file)})
		if err != nil {
			return Sum{}, err
		}
		if res.Status != 0 {
			return Sum{}, fault.New(fault.Conflict, "%s ended with status %d: %s", by.argv[0], res.Status, lastLines(string(res.Log))).
				WithHint("ESXi does not open the disks of a running VM; check that it is off, and that the file exists")
		}
		text, err := findSum(res.Log, by.size)
		return Sum{by.algorithm, text}, err
	}
	return Sum{}, fault.New(fault.Unsupported, "the host has neither sha256sum nor openssl nor md5sum")
}

// findSum returns the hash in the output of a hash command. md5sum prints it first,
// after a backslash if the name is escaped; openssl prints it last, after "=".
func findSum(log []byte, size int) (string, error) {
	// Both forms are tried, because the log does not name the command.
	begin, end := bytes.TrimPrefix(log, []byte(`\`)), bytes.TrimSpace(log)
	begin = begin[:min(len(begin), 2*size)]
	if i := bytes.LastIndex(end, []byte("= ")); i >= 0 {
		end = end[i+2:]
	}
	for _, text := range [][]byte{begin, end} {
		if sum, err := hex.DecodeString(string(text)); err == nil && len(sum) == size {
			return hex.EncodeToString(sum), nil
		}
	}
	return "", fault.New(fault.Corrupt, "the answer of the host contains no hash: %.200q", log)
}
