package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/lab"
)

// emulated is an ESXi in a separate process, with one VM of one disk.
type emulated struct {
	facts labFacts
	cmd   *exec.Cmd
	stdin io.Closer // closing it ends the process
}

// labFacts is the output of the lab's process once it listens.
type labFacts struct {
	Addr        string `json:"addr"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Fingerprint string `json:"fingerprint"`
	Control     string `json:"control"`
	Size        int64  `json:"size"`
	Allocated   int64  `json:"allocated"`
}

// logIn logs in as decamp does. scheme is "esxi" or "vcenter".
func (f labFacts) logIn(ctx context.Context, scheme string) (*esx.Session, error) {
	return esx.Dial(ctx, esx.Config{
		URL:         &url.URL{Scheme: scheme, Host: f.Addr, User: url.User(f.User)},
		Password:    func(context.Context) (esx.Secret, error) { return esx.Secret(f.Password), nil },
		Fingerprint: f.Fingerprint,
	})
}

const benchVM = "bench"

// startLab starts an emulated ESXi whose VM has one generated disk.
func startLab(ctx context.Context, d lab.Disk, limits lab.Limits) (*emulated, error) {
	return startLabOf(ctx, []lab.Disk{d}, limits)
}

// startLabOf starts an emulated ESXi whose VM has several.
func startLabOf(ctx context.Context, disks []lab.Disk, limits lab.Limits) (*emulated, error) {
	return startLabWith(ctx, lab.Config{
		VMs:    []lab.VM{{Name: benchVM, ChangeTracking: true, Disks: disks}},
		Limits: limits,
	})
}

// labPatience is how long an emulated ESXi may take to end.
const labPatience = 10 * time.Second

// startLabWith starts a lab with the configuration, which must have a VM with a disk.
func startLabWith(ctx context.Context, config lab.Config) (*emulated, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return startLabBy(exec.CommandContext(ctx, self, "child", "lab"), config)
}

// startLabBy starts it by a command of the role lab, which may run in another network.
func startLabBy(cmd *exec.Cmd, config lab.Config) (*emulated, error) {
	e := &emulated{cmd: cmd}
	e.cmd.Stderr = os.Stderr
	stdin, err := e.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := e.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	e.stdin = stdin
	e.cmd.Cancel, e.cmd.WaitDelay = stdin.Close, labPatience // the lab removes its folders
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(stdin).Encode(config); err != nil {
		e.stop()
		return nil, fmt.Errorf("start lab: %w", err)
	}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &e.facts)
	}
	if err != nil {
		e.stop()
		return nil, fmt.Errorf("start lab: %w", err)
	}
	return e, nil
}

func (e *emulated) stop() {
	e.stdin.Close()
	_ = e.cmd.Wait() // the process ends when its input is closed; its errors are on stderr
}

// diskURL is the disk's flat file as any HTTP client would ask for it.
func (e *emulated) diskURL() string {
	return fmt.Sprintf("https://%s/folder/%s/%s-flat.vmdk?dcPath=ha-datacenter&dsName=datastore1", e.facts.Addr, benchVM, benchVM)
}

// bytesSent returns the bytes of files the lab has sent since it started.
func (e *emulated) bytesSent(ctx context.Context) (int64, error) {
	s, err := e.facts.readStats(ctx)
	return s.BodyBytes, err
}

// readStats returns what the lab has counted since it started.
func (f labFacts) readStats(ctx context.Context) (s lab.Stats, err error) {
	return s, f.callControl(ctx, http.MethodGet, "/stats", nil, &s)
}

// writeGuest has a guest make its next writes.
func (f labFacts) writeGuest(ctx context.Context, vm string, count int64) error {
	return f.callControl(ctx, http.MethodPost, "/writes/"+url.PathEscape(vm), map[string]int64{"count": count}, nil)
}

// callControl calls the lab's control API, and decodes the response into answer.
func (f labFacts) callControl(ctx context.Context, method, path string, body, answer any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, f.Control+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	case answer == nil:
		return nil
	}
	return json.Unmarshal(text, answer)
}

// childLab is the lab's process. It reads its Config from its input, because ten thousand VMs are too
// long for an argument, and serves until the input ends.
func childLab(ctx context.Context, _ []string) error {
	var cfg lab.Config
	if err := json.NewDecoder(os.Stdin).Decode(&cfg); err != nil {
		return err
	}
	signal.Ignore(os.Interrupt) // the parent handles the signal and closes the input
	log.SetOutput(io.Discard)   // the simulator logs each existing snapshot file
	l, err := lab.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer l.Close()
	d, err := l.Disk(cfg.VMs[0].Name, 0)
	if err != nil {
		return err
	}
	facts := labFacts{Addr: l.Addr(), User: l.User(), Password: l.Password(), Fingerprint: l.Fingerprint(),
		Control: l.ControlURL(), Size: d.Size, Allocated: d.Allocated}
	if err := json.NewEncoder(os.Stdout).Encode(facts); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
