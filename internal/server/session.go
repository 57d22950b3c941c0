package server

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// sessions are those of browsers. A session is a cookie that the server signs. It ends with the token
// that began it, after sessionAge, and when the server restarts: the key that signs cookies is in
// memory only, so that a copy of the state directory forges no session.
type sessions struct {
	key    []byte
	now    func() time.Time
	cookie http.Cookie // without its value
}

const (
	sessionAge = 12 * time.Hour
	keyBytes   = 32
	hashMark   = 16 // hex digits of the token's hash that a session names
)

// session is the content of a session cookie.
type session struct {
	Token string    `json:"t"`
	Mark  string    `json:"m"` // the beginning of the token's hash: another token of that name is another
	Until time.Time `json:"u"`
	Nonce []byte    `json:"n"`
}

// newSessions makes a new key that signs cookies. secure is whether browsers use TLS; with it the
// cookie is of this host and cannot be set by a neighbour.
func newSessions(secure bool) *sessions {
	key := make([]byte, keyBytes)
	rand.Read(key)
	c := http.Cookie{Name: "decamp", Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: int(sessionAge.Seconds())}
	if secure {
		c.Name, c.Secure = "__Host-decamp", true
	}
	return &sessions{key: key, now: time.Now, cookie: c}
}

// forgetSessionKey removes the key that earlier versions kept in the state directory.
func forgetSessionKey(state string) error {
	err := os.Remove(filepath.Join(state, "session.key"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// newCookie returns the cookie of a new session.
func (s *sessions) newCookie(t Token) (*http.Cookie, error) {
	nonce := make([]byte, hashMark)
	rand.Read(nonce)
	text, err := json.Marshal(session{t.Name, t.SHA256[:hashMark], s.now().Add(sessionAge), nonce})
	if err != nil {
		return nil, err
	}
	payload := base64.RawURLEncoding.EncodeToString(text)
	c := s.cookie
	c.Value = payload + "." + s.sign("session", payload)
	return &c, nil
}

// expiredCookie returns a cookie that removes the session's.
func (s *sessions) expiredCookie() *http.Cookie {
	c := s.cookie
	c.MaxAge = -1
	return &c
}

// readSession returns the session of a request's cookie if its signature is valid and it has not expired.
func (s *sessions) readSession(r *http.Request) (said session, value string, ok bool) {
	c, err := r.Cookie(s.cookie.Name)
	if err != nil {
		return said, "", false
	}
	payload, signature, _ := strings.Cut(c.Value, ".")
	if !hmac.Equal([]byte(signature), []byte(s.sign("session", payload))) {
		return said, "", false
	}
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil || json.Unmarshal(text, &said) != nil {
		return said, "", false
	}
	return said, c.Value, s.now().Before(said.Until)
}

// formProof is what a form of a session carries, so that no other site can make one.
func (s *sessions) formProof(value string) string { return s.sign("form", value) }

func (s *sessions) isProof(value, proof string) bool {
	return hmac.Equal([]byte(proof), []byte(s.formProof(value)))
}

func (s *sessions) sign(use, text string) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(use + ":" + text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
