package sqlitedb

import (
	"context"
	"database/sql/driver"
	"strings"
)

// kept is how many statements a connection keeps: more than decamp and its engine have. Those
// that are put together as they are needed (lists of parameters) may take the rest.
const maxIdle = 256

// takeStatement returns the compiled statement of a query, for exclusive use until give.
func (c *conn) takeStatement(ctx context.Context, query string) (driver.Stmt, error) {
	if s, ok := c.idle[query]; ok {
		delete(c.idle, query)
		return s, nil
	}
	return c.plainConn.PrepareContext(ctx, query)
}

// returnStatement keeps it, unless another of the same words was given back meanwhile.
func (c *conn) returnStatement(query string, s driver.Stmt) {
	if _, there := c.idle[query]; there || len(c.idle) >= maxIdle || !isReusable(query) {
		_ = s.Close() // its effects are complete
		return
	}
	c.idle[query] = s
}

// isReusable reports whether a statement is likely to come again: scripts and changes of the schema
// come once.
func isReusable(query string) bool {
	switch firstWord(query) {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "WITH":
		return true
	}
	return false
}

// isReadOnly reports whether a statement is known to change nothing.
func isReadOnly(query string) bool { return firstWord(query) == "SELECT" }

// firstWord is the first word of a statement.
func firstWord(query string) string {
	query = strings.TrimLeft(query, " \t\r\n")
	if end := strings.IndexAny(query, " \t\r\n("); end >= 0 {
		query = query[:end]
	}
	return strings.ToUpper(query)
}
