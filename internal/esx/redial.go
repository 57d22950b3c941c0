package esx

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/decamp/decamp/internal/fault"
)

// redial repeats a request once on a new connection when the one it went out on was
// dead: hosts close idle connections, and all of them when their agents restart.
// net/http does so for some requests in some cases; API calls are POST and not among
// them. Whatever passes here may reach the server twice: reading does no harm, and
// neither does a second request to power off. Logins do not pass here.
type redialTransport struct{ base *http.Transport }

func (d redialTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := takeBody(req)
	if err != nil {
		return nil, err
	}
	res, err := d.base.RoundTrip(withBody(req, body))
	if err == nil || req.Context().Err() != nil || !isLostConnection(err) {
		return res, err
	}
	d.base.CloseIdleConnections()
	return d.base.RoundTrip(withBody(req, body))
}

// isLostConnection reports whether err is that of a connection that was made and then lost.
func isLostConnection(err error) bool {
	var known *fault.Error // a certificate that is not the pinned one
	var op *net.OpError
	var network net.Error
	switch {
	case errors.As(err, &known), errors.As(err, &op) && op.Op == "dial":
		return false
	case errors.As(err, &network) && network.Timeout():
		return false
	}
	return true
}

func takeBody(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	defer req.Body.Close()
	return io.ReadAll(req.Body)
}

func withBody(req *http.Request, body []byte) *http.Request {
	req = req.Clone(req.Context())
	if body != nil {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	return req
}
