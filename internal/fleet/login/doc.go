// Package login permits one login at a time at each source in the whole fleet, and none while a refusal
// is on record.
//
// Hosts lock an account after a few refused logins (ESXi after five within 15 minutes), and the operator
// cannot log in then either. So a refusal is recorded in the fleet database before the next login may be
// tried, and every later login fails at once with fault.ErrLogin. The record stays until an operator
// resumes a plan of that source (DropRefusals).
package login
