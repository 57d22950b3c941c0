package differential

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/diskfile"
	"github.com/decamp/decamp/internal/vmdk"
)

// A reader writes what an image holds into a raw file.
type reader struct {
	name   string
	reads  func(w writer) bool
	read   func(ctx context.Context, format, path, out string) error
	closed func() error // nil: nothing to close
}

const fromAPipe = "decamp from a pipe"

// stream reports whether a writer's images are streams in the order of the disk.
func (w writer) stream() bool {
	return w.name == "qemu-img streamOptimized" || w.name == "VMDKstream" || w.name == "govmomi"
}

func (w writer) chain() bool { return w.name == "qemu-img sparse chain" || w.name == "qemu-img chain" }

func readers(ctx context.Context, root string) ([]reader, error) {
	any := func(writer) bool { return true }
	all := []reader{
		{name: "decamp", reads: any, read: readFile},
		{name: fromAPipe, reads: writer.stream, read: readPipe},
		{name: "qemu-img", reads: any, read: func(ctx context.Context, format, path, out string) error {
			return command(ctx, "qemu-img", "convert", "-f", format, "-O", "raw", path, out)
		}},
		// It reads no parents, and no qcow2 with less than all of its clusters in place.
		{name: "7-Zip", reads: func(w writer) bool { return !w.chain() }, read: read7Zip},
	}
	for name, by := range map[string]struct {
		python, library string
		reads           func(writer) bool
	}{
		"libvmdk": {"/usr/bin/python3", "libvmdk", func(w writer) bool { return w.format == "vmdk" }},
		"libqcow": {"/usr/bin/python3", "libqcow", func(w writer) bool { return w.format == "qcow2" }},
		"dissect": {filepath.Join(root, "build/dissect.hypervisor/bin/python"), "dissect", any},
	} {
		p, err := startPython(ctx, by.python, by.library)
		if err != nil {
			return nil, err
		}
		all = append(all, reader{name: name, reads: by.reads, read: p.read, closed: p.close})
	}
	return all, nil
}

// readFile is what decamp convert does.
func readFile(ctx context.Context, _, path, out string) (err error) {
	src, err := diskfile.Open(ctx, path, diskfile.Options{Backing: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	to, err := rawfile.Create(out, src.Size(), rawfile.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if _, err := blockcopy.Copy(ctx, src, to, blockcopy.Options{}); err != nil {
		return err
	}
	return to.Finish(ctx)
}

func readPipe(ctx context.Context, _, path, out string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	s, err := vmdk.ReadStream(ctx, f)
	if err != nil {
		return err
	}
	to, err := rawfile.Create(out, s.Size(), rawfile.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if _, err := blockcopy.Receive(ctx, s, to, blockcopy.Options{}); err != nil {
		return err
	}
	return to.Finish(ctx)
}

func read7Zip(ctx context.Context, format, path, out string) (err error) {
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	kind := map[string]string{"vmdk": "VMDK", "qcow2": "QCOW"}[format]
	cmd := exec.CommandContext(ctx, "7zz", "e", "-so", "-t"+kind, path)
	var words bytes.Buffer
	cmd.Stdout, cmd.Stderr = f, &words
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("7zz: %w: %s", err, bytes.TrimSpace(words.Bytes()))
	}
	return nil
}

// python is a process that reads one image after the other.
type python struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startPython(ctx context.Context, program, library string) (*python, error) {
	p := &python{cmd: exec.CommandContext(ctx, program, "testdata/read.py", library)}
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w: run scripts/setup.sh test", program, err)
	}
	return p, nil
}

// errDied is the answer of a library that took its process with it.
var errDied = errors.New("the process of the reader ended")

func (p *python) read(_ context.Context, format, path, out string) error {
	job, err := json.Marshal(map[string]string{"format": format, "in": path, "out": out})
	if err != nil {
		return err
	}
	if _, err := p.in.Write(append(job, '\n')); err != nil {
		return errDied
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return errDied
	}
	var answer struct{ Error string }
	if err := json.Unmarshal(line, &answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}

func (p *python) close() error {
	return errors.Join(p.in.Close(), p.cmd.Wait())
}
