package server_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/server"
)

func TestHugeBodiesAreRefused(t *testing.T) {
	r := newTestServer(t, nil)
	for path, size := range map[string]int{"/v1/plans": 5 << 20, "/v1/plans/p/commands": 1 << 20, "/v1/limits": 1 << 20} {
		method := "POST"
		if path == "/v1/limits" {
			method = "PUT"
		}
		a := r.sendAs(server.Admin, method, path, strings.Repeat(" ", size))
		if r.wantProblem(a, "invalid"); a.status != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: got status %d, body %.200s", path, a.status, a.body)
		}
	}
	b := r.logIn(server.Operate)
	if a := b.send("POST", "/plans/p/commands", "command=pause&back="+strings.Repeat("x", 1<<20), func(req *http.Request) {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}); a.status/100 != 4 {
		t.Errorf("the form of a plan: status %d, want 4xx", a.status)
	}
}

// The server refuses hostile YAML with the findings of package planfile.
func TestHostileYAMLIsRefused(t *testing.T) {
	r := newTestServer(t, nil)
	bomb := "version: 1\nname: p\na: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b,*b]\n"
	for name, text := range map[string]string{"bomb": bomb, "depth": "version: " + strings.Repeat("[", 100_000), "binary": "version: 1\x00\xff\xfe"} {
		a := r.sendAs(server.Operate, "POST", "/v1/plans", text)
		if p := r.wantProblem(a, "invalid"); a.status != http.StatusUnprocessableEntity || len(p.Findings) == 0 {
			t.Errorf("%s: got status %d, body %.300s", name, a.status, a.body)
		}
	}
}

func TestHeaderFloodsAreRefused(t *testing.T) {
	r := newTestServer(t, nil)
	conn := r.dial()
	fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n")
	for i := range 3000 {
		if _, err := fmt.Fprintf(conn, "X-%d: %s\r\n", i, strings.Repeat("y", 100)); err != nil {
			break // the server closed the connection
		}
	}
	fmt.Fprintf(conn, "\r\n")
	status, err := bufio.NewReader(conn).ReadString('\n')
	if !strings.HasPrefix(status, "HTTP/1.1 431 ") {
		t.Errorf("got status line %q, error %v, want status 431", status, err)
	}
}

func (r *testServer) dial() net.Conn {
	r.t.Helper()
	conn, err := tls.Dial("tcp", r.Addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		r.t.Fatal(err)
	}
	return conn
}

// The server closes a connection whose header is not complete in time.
func TestSlowHeadersAreCutOff(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel() // the timeout is ten seconds
	r := newTestServer(t, nil)
	conn := r.dial()
	if _, err := io.WriteString(conn, "GET /healthz HT"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := io.ReadAll(conn); err != nil {
		t.Errorf("the server did not close the connection: %v after %s", err, time.Since(began))
	}
	if a := r.sendAs("", "GET", "/healthz", ""); a.status != http.StatusOK {
		t.Errorf("another connection: status %d, want 200", a.status)
	}
}
