// Package browser controls a Chromium in tests, with the DevTools protocol over a pipe. It implements only the commands
// that the tests need.
package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"
)

// Program is the browser of Debian, which scripts/setup.sh installs.
const Program = "chromium"

// operationTimeout limits how long a page may take for any operation.
const operationTimeout = time.Minute

// Browser is a Chromium with one page. Its methods must be called by the goroutine of the test; an
// error ends the test.
type Browser struct {
	t    testing.TB     // test that the browser belongs to
	in   io.WriteCloser // commands to the browser, each terminated by a zero
	done chan struct{}  // closed when the output of the browser has ended

	mu      sync.Mutex           // guards the fields below
	next    int                  // ID of the newest command
	answers map[int]chan message // channels of commands without an answer, by ID
	session string               // session of the page; empty until attachPage has found it
	errors  []string             // errors of the page: exceptions, console errors, violations of its security policy
	dialogs []string             // texts of dialogs, which are all accepted
}

// A message is a command, its answer or an event of the DevTools protocol.
type message struct {
	ID      int             `json:"id,omitempty"`        // number of a command and its answer; 0 for an event
	Method  string          `json:"method,omitempty"`    // command or event, such as Page.navigate
	Params  any             `json:"params,omitempty"`    // parameters of a command
	Session string          `json:"sessionId,omitempty"` // session of the page
	Result  json.RawMessage `json:"result,omitempty"`    // result in an answer
	// error in an answer; nil if the command succeeded
	Error *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Start starts a browser that accepts any certificate, and that ends with the test.
func Start(t testing.TB) *Browser {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a browser")
	}
	toChild, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, fromChild, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(Program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-extensions", "--ignore-certificate-errors",
		"--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "--window-size=1280,900", "about:blank")
	cmd.ExtraFiles = []*os.File{toChild, fromChild} // descriptors 3 and 4, which the switch requires
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	toChild.Close()   // the child has a duplicate
	fromChild.Close() // otherwise out would never end
	b := &Browser{t: t, in: in, done: make(chan struct{}), answers: map[int]chan message{}}
	go b.readMessages(out)
	t.Cleanup(func() { b.closeBrowser(cmd) })
	b.attachPage()
	return b
}

// closeBrowser closes the browser, and kills it after a minute.
func (b *Browser) closeBrowser(cmd *exec.Cmd) {
	_ = b.sendMessage(message{ID: -1, Method: "Browser.close"})
	kill := time.AfterFunc(operationTimeout, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	_ = cmd.Wait() // the exit status does not depend on the page
	b.in.Close()
	<-b.done
}

// attachPage opens a page and enables its events.
func (b *Browser) attachPage() {
	b.t.Helper()
	var target struct{ TargetID string }
	b.callMethod("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.callMethod("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	b.mu.Lock()
	b.session = session.SessionID
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.callMethod(domain+".enable", nil, nil)
	}
}

// sendMessage sends a message to the browser.
func (b *Browser) sendMessage(m message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = b.in.Write(append(text, 0))
	return err
}

// callMethod sends a command and decodes the result into result, which may be nil. An error ends the
// test.
func (b *Browser) callMethod(method string, params, result any) {
	b.t.Helper()
	b.mu.Lock()
	b.next++
	answer := make(chan message, 1)
	b.answers[b.next] = answer
	m := message{ID: b.next, Method: method, Params: params, Session: b.session}
	b.mu.Unlock()
	if err := b.sendMessage(m); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), operationTimeout)
	defer cancel()
	select {
	case m := <-answer:
		b.decodeResult(method, m, result)
	case <-b.done:
		b.t.Fatalf("%s: the browser has ended", method)
	case <-ctx.Done():
		b.t.Fatalf("%s: no answer; errors of the page: %v", method, b.Errors())
	}
}

// decodeResult decodes the answer to a command.
func (b *Browser) decodeResult(method string, m message, result any) {
	b.t.Helper()
	if m.Error != nil {
		b.t.Fatalf("%s: %s", method, m.Error.Message)
	}
	if result == nil {
		return
	}
	if err := json.Unmarshal(m.Result, result); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
}

// readMessages handles the browser's messages until its output ends.
func (b *Browser) readMessages(out io.ReadCloser) {
	defer close(b.done)
	defer out.Close()
	messages := bufio.NewScanner(out)
	messages.Buffer(nil, 64<<20) // a screenshot is one message
	messages.Split(func(data []byte, _ bool) (int, []byte, error) {
		if i := bytes.IndexByte(data, 0); i >= 0 {
			return i + 1, data[:i], nil
		}
		return 0, nil, nil
	})
	for messages.Scan() {
		var m struct {
			message
			Params json.RawMessage `json:"params"`
		}
		if json.Unmarshal(messages.Bytes(), &m) == nil {
			b.handleMessage(m.message, m.Params)
		}
	}
}

// handleMessage delivers an answer, records an error of the page, or accepts a dialog.
func (b *Browser) handleMessage(m message, params json.RawMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if answer := b.answers[m.ID]; m.ID > 0 && answer != nil {
		delete(b.answers, m.ID)
		answer <- m // buffered
		return
	}
	if text := eventError(m.Method, params); text != "" {
		b.errors = append(b.errors, text)
	}
	if m.Method == "Page.javascriptDialogOpening" {
		b.dialogs = append(b.dialogs, string(params))
		_ = b.sendMessage(message{ID: -1, Method: "Page.handleJavaScriptDialog", Params: map[string]any{"accept": true}, Session: b.session})
	}
}

// eventError returns the error that an event reports; empty if it reports none.
func eventError(method string, params json.RawMessage) string {
	var p struct {
		Type  string
		Entry struct{ Level, Text, URL string }
	}
	if json.Unmarshal(params, &p) != nil {
		return ""
	}
	switch {
	case method == "Runtime.exceptionThrown", method == "Runtime.consoleAPICalled" && p.Type == "error":
		return string(params)
	case method == "Log.entryAdded" && p.Entry.Level == "error":
		return p.Entry.Text + " " + p.Entry.URL
	}
	return ""
}

// Errors returns the errors of the page so far.
func (b *Browser) Errors() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.errors)
}

// Dialogs returns the texts of the dialogs so far, which were all accepted.
func (b *Browser) Dialogs() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.dialogs)
}

// Open navigates to a URL.
func (b *Browser) Open(url string) {
	b.t.Helper()
	var answer struct{ ErrorText string }
	b.callMethod("Page.navigate", map[string]any{"url": url}, &answer)
	if answer.ErrorText != "" {
		b.t.Fatalf("open %s: %s", url, answer.ErrorText)
	}
}

// SetWindow sets the size of the window in CSS pixels and the colour scheme, light or dark.
func (b *Browser) SetWindow(width, height int, scheme string) {
	b.t.Helper()
	b.callMethod("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.callMethod("Emulation.setScrollbarsHidden", map[string]any{"hidden": true}, nil) // scroll bars would reduce the width
	b.callMethod("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// Screenshot returns the whole page, including the part below the screen.
func (b *Browser) Screenshot() image.Image {
	b.t.Helper()
	var shot struct{ Data []byte }
	b.callMethod("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &shot)
	picture, err := png.Decode(bytes.NewReader(shot.Data))
	if err != nil {
		b.t.Fatal(err)
	}
	return picture
}

// Wait waits until a JavaScript condition is true, on this page or on a later one.
func (b *Browser) Wait(condition string) {
	b.t.Helper()
	deadline := time.Now().Add(operationTimeout)
	for time.Now().Before(deadline) {
		var holds bool
		script := fmt.Sprintf(`new Promise((ok) => { const end = Date.now() + 1000; const look = () => { let now = false; try { now = !!(%s); } catch {}; if (now || Date.now() > end) ok(now); else setTimeout(look, 20); }; look(); })`, condition)
		if b.tryEval(script, &holds) == nil && holds {
			return
		}
	}
	var page string
	_ = b.tryEval("document.body.innerText.slice(0, 2000)", &page)
	b.t.Fatalf("timeout: %s; errors %v; the page:\n%s", condition, b.Errors(), page)
}

// Eval runs a script and decodes its result into result, which may be nil.
func (b *Browser) Eval(script string, result any) {
	b.t.Helper()
	if err := b.tryEval(script, result); err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
}

// tryEval implements Eval. It fails if the page is replaced during the call.
func (b *Browser) tryEval(script string, result any) error {
	b.t.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	if err := b.evaluateScript(script, &answer); err != nil {
		return err
	}
	if answer.ExceptionDetails != nil {
		return fmt.Errorf("%s", answer.ExceptionDetails)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(answer.Result.Value, result)
}

// evaluateScript evaluates a script and decodes the answer into result. Unlike callMethod it returns
// errors.
func (b *Browser) evaluateScript(script string, result any) error {
	b.mu.Lock()
	b.next++
	answer := make(chan message, 1)
	b.answers[b.next] = answer
	m := message{ID: b.next, Method: "Runtime.evaluate", Session: b.session, Params: map[string]any{
		"expression": script, "awaitPromise": true, "returnByValue": true, "userGesture": true,
	}}
	b.mu.Unlock()
	if err := b.sendMessage(m); err != nil {
		return err
	}
	limit := time.NewTimer(operationTimeout)
	defer limit.Stop()
	select {
	case m := <-answer:
		if m.Error != nil {
			return fmt.Errorf("%s", m.Error.Message)
		}
		return json.Unmarshal(m.Result, result)
	case <-b.done:
		return io.ErrUnexpectedEOF
	case <-limit.C:
		return context.DeadlineExceeded
	}
}
