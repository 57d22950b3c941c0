package sqlitedb

import (
	"context"
	"database/sql/driver"
	"strings"
)

// maxIdle is the largest number of compiled statements of a connection, more than decamp and its engine
// have. Generated statements, such as those with lists of parameters, may use the rest.
const maxIdle = 256

// takeStatement returns the compiled statement of a query, for exclusive use until returnStatement.
func (c *conn) takeStatement(ctx context.Context, query string) (driver.Stmt, error) {
	if s, ok := c.idle[query]; ok {
		delete(c.idle, query)
		return s, nil
	}
	return c.plainConn.PrepareContext(ctx, query)
}

// returnStatement keeps s for the next use. It closes s if the query is not reusable, another statement
// of it was returned meanwhile, or too many are kept.
func (c *conn) returnStatement(query string, s driver.Stmt) {
	if _, there := c.idle[query]; there || len(c.idle) >= maxIdle || !isReusable(query) {
		_ = s.Close() // its effects are complete
		return
	}
	c.idle[query] = s
}

// isReusable reports whether a statement is likely to be used again. Scripts and changes of the schema
// are used once.
func isReusable(query string) bool {
	switch firstWord(query) {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "WITH":
		return true
	}
	return false
}

// isReadOnly reports whether a statement is a SELECT. It returns false for other statements that change
// nothing.
func isReadOnly(query string) bool { return firstWord(query) == "SELECT" }

// firstWord returns the first word of a statement in upper case.
func firstWord(query string) string {
	query = strings.TrimLeft(query, " \t\r\n")
	if end := strings.IndexAny(query, " \t\r\n("); end >= 0 {
		query = query[:end]
	}
	return strings.ToUpper(query)
}
