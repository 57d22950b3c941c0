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

// A reader converts an image to a raw file.
type reader struct {
	name     string
	supports func(w writer) bool
	read     func(ctx context.Context, format, path, out string) error
	closed   func() error // ends the reader; may be nil
}

const pipeReader = "decamp from a pipe"

// isStream reports whether the images of a writer are streams in the order of the disk.
func (w writer) isStream() bool {
	return w.name == "qemu-img streamOptimized" || w.name == "VMDKstream" || w.name == "govmomi"
}

func (w writer) isChain() bool {
	return w.name == "qemu-img sparse chain" || w.name == "qemu-img chain"
}

func startReaders(ctx context.Context, root string) ([]reader, error) {
	any := func(writer) bool { return true }
	all := []reader{
		{name: "decamp", supports: any, read: readFile},
		{name: pipeReader, supports: writer.isStream, read: readPipe},
		{name: "qemu-img", supports: any, read: func(ctx context.Context, format, path, out string) error {
			return runCommand(ctx, "qemu-img", "convert", "-f", format, "-O", "raw", path, out)
		}},
		// 7-Zip does not read parents, and no qcow2 images with missing clusters.
		{name: "7-Zip", supports: func(w writer) bool { return !w.isChain() }, read: read7Zip},
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
		all = append(all, reader{name: name, supports: by.reads, read: p.read, closed: p.close})
	}
	return all, nil
}

// readFile reads an image as decamp convert does.
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

// python is a Python process that reads images, one after the other.
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

// errReaderEnded reports that a library ended the process of its reader.
var errReaderEnded = errors.New("the process of the reader ended")

func (p *python) read(_ context.Context, format, path, out string) error {
	job, err := json.Marshal(map[string]string{"format": format, "in": path, "out": out})
	if err != nil {
		return err
	}
	if _, err := p.in.Write(append(job, '\n')); err != nil {
		return errReaderEnded
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return errReaderEnded
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
