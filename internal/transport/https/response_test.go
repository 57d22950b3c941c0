package https

import (
	"bufio"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
)

func parseHead(head string) (response, error) {
	return readResponse(bufio.NewReaderSize(strings.NewReader(head), headBuffer))
}

func TestResponseHeads(t *testing.T) {
	cases := []struct {
		name, head string
		want       response
	}{
		{"as ESXi sends it",
			"HTTP/1.1 206 Partial Content\r\nDate: Sat, 21 Nov 2026 10:00:00 GMT\r\nAccept-Ranges: bytes\r\nConnection: Keep-Alive\r\n" +
				"Content-Type: application/octet-stream\r\nContent-Length: 512\r\nContent-Range: bytes 1024-1535/1048576\r\n\r\n",
			response{status: 206, length: 512, part: disk.Range{Off: 1024, Len: 512}, total: 1 << 20}},
		{"bare line feeds, mixed case, blanks",
			"HTTP/1.1 206\nCONTENT-LENGTH:   7  \nconnection: close\n\n",
			response{status: 206, length: 7, total: -1, close: true}},
		{"HTTP/1.0 closes", "HTTP/1.0 200 OK\r\n\r\n", response{status: 200, length: -1, total: -1, close: true}},
		{"416", "HTTP/1.1 416 x\r\nContent-Range: bytes */77\r\n\r\n", response{status: 416, length: -1, total: 77}},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", response{status: 200, length: -1, total: -1, chunked: true}},
		{"503 with a date and with seconds",
			"HTTP/1.1 503 Busy\r\nRetry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\nRetry-After: 7\r\n\r\n",
			response{status: 503, length: -1, total: -1, retryAfter: 7 * time.Second}},
		{"after interim answers", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 x\r\nA: b\r\n\r\nHTTP/1.1 204 x\r\n\r\n",
			response{status: 204, length: -1, total: -1}},
	}
	for _, c := range cases {
		got, err := parseHead(c.head)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, error %v; want %+v", c.name, got, err, c.want)
		}
	}
}

func TestMalformedHeadsAreRefused(t *testing.T) {
	ok := "HTTP/1.1 206 x\r\n"
	for _, head := range []string{
		"SSH-2.0-OpenSSH\r\n\r\n",
		"HTTP/2 200 OK\r\n\r\n",
		"HTTP/1.1 99 x\r\n\r\n",
		"HTTP/1.1 -06 x\r\n\r\n",
		"HTTP/1.1 2066 x\r\n\r\n",
		ok + "no colon\r\n\r\n",
		ok + "Content-Length: -1\r\n\r\n",
		ok + "Content-Length: 0x10\r\n\r\n",
		ok + "Content-Length: 99999999999999999999\r\n\r\n",
		ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
		ok + "Content-Range: bytes 5-4/10\r\n\r\n",
		ok + "Content-Range: bytes 5-10/10\r\n\r\n",
		ok + "Content-Range: bytes 5/10\r\n\r\n",
		ok + "Content-Range: bytes 0-9223372036854775807/*\r\n\r\n",
		ok + "Content-Range: chars 0-1/10\r\n\r\n",
		ok + "X: " + strings.Repeat("x", headBuffer) + "\r\n\r\n",
		ok + strings.Repeat("A: b\r\n", mostHeadLines) + "\r\n",
		strings.Repeat("HTTP/1.1 100 x\r\nA: b\r\n\r\n", mostHeadLines),
	} {
		if r, err := parseHead(head); !errors.Is(err, errMalformed) {
			t.Errorf("%.60q: got %+v, error %v, want errMalformed", head, r, err)
		}
	}
}

func TestTruncatedResponseHead(t *testing.T) {
	for _, head := range []string{"", "H", "HTTP/1.1 206 x\r\n", "HTTP/1.1 206 x\r\nA: b\r\n", "HTTP/1.1 100 x\r\n\r\n"} {
		if _, err := parseHead(head); err != io.ErrUnexpectedEOF {
			t.Errorf("%q: error %v, want unexpected EOF", head, err)
		}
	}
}

// FuzzResponse checks that the parser returns for any input, and that the numbers of an accepted head are plausible.
func FuzzResponse(f *testing.F) {
	f.Add([]byte("HTTP/1.1 206 Partial Content\r\nContent-Length: 512\r\nContent-Range: bytes 0-511/1024\r\n\r\n"))
	f.Add([]byte("HTTP/1.0 416 x\r\nContent-Range: bytes */77\r\nConnection: close\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 100 x\r\n\r\nHTTP/1.1 503 x\r\nRetry-After: 3\r\nTransfer-Encoding: chunked\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\nContent-Length: 1\nContent-Length: 1\n\n"))
	f.Fuzz(func(t *testing.T, head []byte) {
		r, err := parseHead(string(head))
		if err != nil {
			return
		}
		if r.status < 200 || r.status > 999 || r.length < -1 || r.total < -1 || r.part.Off < 0 || r.part.Len < 0 || r.part.End() < 0 {
			t.Errorf("accepted %+v", r)
		}
		if r.total >= 0 && r.part.End() > r.total {
			t.Errorf("accepted part %v of %d bytes", r.part, r.total)
		}
	})
}

func TestRequest(t *testing.T) {
	got, err := appendRequest(nil, "esx1:443", "/folder/a%20b-flat.vmdk?dcPath=x", "vmware_soap_session=\"1\"", disk.Range{Off: 10, Len: 5})
	want := "GET /folder/a%20b-flat.vmdk?dcPath=x HTTP/1.1\r\nHost: esx1\r\nUser-Agent: decamp\r\nAccept-Encoding: identity\r\n" +
		"Range: bytes=10-14\r\nCookie: vmware_soap_session=\"1\"\r\n\r\n"
	if err != nil || string(got) != want {
		t.Errorf("got %q, error %v, want %q", got, err, want)
	}
}

func TestRequestCannotSmuggle(t *testing.T) {
	r := disk.Range{Len: 1}
	for _, uri := range []string{"", "folder", "/a b", "/a\r\nX: y", "/\u00e4", "/a\x7f"} {
		if got, err := appendRequest(nil, "h", uri, "", r); err == nil {
			t.Errorf("URI %q: got request %q, want an error", uri, got)
		}
	}
	if got, err := appendRequest(nil, "h", "/a", "a=b\r\nX: y", r); err == nil {
		t.Errorf("cookie with a line break: got request %q, want an error", got)
	}
}
