package https

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/disk"
)

// appendRequest appends the GET of a range of uri. Host escapes the values. A line break or blank in
// one could still add a second request, so appendRequest refuses it.
func appendRequest(b []byte, addr, uri, cookie string, r disk.Range) ([]byte, error) {
	if strings.ContainsFunc(uri, notInURI) || !strings.HasPrefix(uri, "/") {
		return nil, fmt.Errorf("%q is not a request URI", uri)
	}
	if strings.ContainsAny(cookie, "\r\n") {
		return nil, fmt.Errorf("the session cookie has a line break")
	}
	b = append(b, "GET "...)
	b = append(b, uri...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, strings.TrimSuffix(addr, ":443")...) // browsers omit the default port too, and proxies compare the header
	b = append(b, "\r\nUser-Agent: decamp\r\nAccept-Encoding: identity\r\nRange: bytes="...)
	b = strconv.AppendInt(b, r.Off, 10)
	b = append(b, '-')
	b = strconv.AppendInt(b, r.End()-1, 10)
	if cookie != "" {
		b = append(b, "\r\nCookie: "...)
		b = append(b, cookie...)
	}
	return append(b, "\r\n\r\n"...), nil
}

// notInURI reports whether r must be escaped in a request URI.
func notInURI(r rune) bool { return r <= ' ' || r >= 0x7f }
