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

// emulated is an emulated ESXi host in a separate process, with one VM by default.
type emulated struct {
	facts labFacts  // addresses and credentials
	cmd   *exec.Cmd // process of the emulator
	stdin io.Closer // closing it ends the process
}

// labFacts is the output of the emulator's process after it listens.
type labFacts struct {
	Addr        string `json:"addr"`        // host:port of the API
	User        string `json:"user"`        // user name
	Password    string `json:"password"`    // password
	Fingerprint string `json:"fingerprint"` // SHA-256 of the certificate
	Control     string `json:"control"`     // URL of the control API
	Size        int64  `json:"size"`        // size of the first disk in bytes
	Allocated   int64  `json:"allocated"`   // allocated bytes of the first disk
}

// logIn logs in as decamp does. scheme is "esxi" or "vcenter".
func (f labFacts) logIn(ctx context.Context, scheme string) (*esx.Session, error) {
	return esx.Dial(ctx, esx.Config{
		URL:         &url.URL{Scheme: scheme, Host: f.Addr, User: url.User(f.User)},
		Password:    func(context.Context) (esx.Secret, error) { return esx.Secret(f.Password), nil },
		Fingerprint: f.Fingerprint,
	})
}

// benchVM is the name of the only or first VM.
const benchVM = "bench"

// startLab starts an emulated ESXi host whose VM has one generated disk.
func startLab(ctx context.Context, d lab.Disk, limits lab.Limits) (*emulated, error) {
	return startLabOf(ctx, []lab.Disk{d}, limits)
}

// startLabOf starts an emulated ESXi host whose VM has several disks.
func startLabOf(ctx context.Context, disks []lab.Disk, limits lab.Limits) (*emulated, error) {
	return startLabWith(ctx, lab.Config{
		VMs:    []lab.VM{{Name: benchVM, ChangeTracking: true, Disks: disks}},
		Limits: limits,
	})
}

// labPatience limits the time that the emulator has to end.
const labPatience = 10 * time.Second

// startLabWith starts an emulator with a configuration, which must have a VM with a
// disk.
func startLabWith(ctx context.Context, config lab.Config) (*emulated, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return startLabBy(exec.CommandContext(ctx, self, "child", "lab"), config)
}

// startLabBy starts an emulator with a command of the role lab, which may run in
// another network namespace.
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
	// The configuration is the first input. The process serves until its input ends.
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

// stop ends the process and waits.
func (e *emulated) stop() {
	e.stdin.Close()
	_ = e.cmd.Wait() // the process ends when its input is closed; its errors are on stderr
}

// diskURL returns the URL of the disk's flat file, for any HTTP client.
func (e *emulated) diskURL() string {
	return fmt.Sprintf("https://%s/folder/%s/%s-flat.vmdk?dcPath=ha-datacenter&dsName=datastore1", e.facts.Addr, benchVM, benchVM)
}

// bytesSent returns the bytes of files that the emulator has sent since its start.
func (e *emulated) bytesSent(ctx context.Context) (int64, error) {
	s, err := e.facts.readStats(ctx)
	return s.BodyBytes, err
}

// readStats returns the emulator's counters since its start.
func (f labFacts) readStats(ctx context.Context) (s lab.Stats, err error) {
	return s, f.callControl(ctx, http.MethodGet, "/stats", nil, &s)
}

// writeGuest makes the guest of a VM perform its next writes.
func (f labFacts) writeGuest(ctx context.Context, vm string, count int64) error {
	return f.callControl(ctx, http.MethodPost, "/writes/"+url.PathEscape(vm), map[string]int64{"count": count}, nil)
}

// callControl calls the emulator's control API, and decodes the response into answer,
// which may be nil.
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

// childLab runs the emulator. It reads its configuration from standard input, because
// ten thousand VMs are too long for an argument. It ends with its input.
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
