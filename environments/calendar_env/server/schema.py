"""The tables that a session's calendar lives in."""

from __future__ import annotations

SCHEMA = """
CREATE TABLE users (
    email TEXT PRIMARY KEY, display_name TEXT NOT NULL, role TEXT NOT NULL, title TEXT NOT NULL,
    time_zone TEXT NOT NULL, working_hours TEXT NOT NULL, manager TEXT);
CREATE TABLE groups (email TEXT PRIMARY KEY, display_name TEXT NOT NULL);
CREATE TABLE group_members (
    group_email TEXT NOT NULL, member_email TEXT NOT NULL, PRIMARY KEY (group_email, member_email));
CREATE TABLE calendars (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, owner TEXT, summary TEXT NOT NULL, description TEXT NOT NULL,
    location TEXT NOT NULL, time_zone TEXT NOT NULL, capacity INTEGER, features TEXT NOT NULL,
    deleted INTEGER NOT NULL DEFAULT 0);
CREATE TABLE acl (
    calendar_id TEXT NOT NULL, rule_id TEXT NOT NULL, scope_type TEXT NOT NULL, scope_value TEXT NOT NULL,
    role TEXT NOT NULL, PRIMARY KEY (calendar_id, rule_id));
CREATE TABLE calendar_list (
    user_email TEXT NOT NULL, calendar_id TEXT NOT NULL, summary_override TEXT, color_id TEXT,
    hidden INTEGER NOT NULL DEFAULT 0, selected INTEGER NOT NULL DEFAULT 1, default_reminders TEXT NOT NULL,
    PRIMARY KEY (user_email, calendar_id));
CREATE TABLE settings (user_email TEXT NOT NULL, id TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (user_email, id));
CREATE TABLE events (
    id TEXT PRIMARY KEY, calendar_id TEXT NOT NULL, ical_uid TEXT NOT NULL, recurring_event_id TEXT,
    original_start TEXT, status TEXT NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL, creator TEXT NOT NULL,
    sequence INTEGER NOT NULL, revision INTEGER NOT NULL, start_utc INTEGER, end_utc INTEGER, body TEXT NOT NULL);
CREATE INDEX events_of_calendar ON events (calendar_id);
CREATE INDEX events_of_series ON events (recurring_event_id);
CREATE TABLE attendees (
    event_id TEXT NOT NULL, email TEXT NOT NULL, position INTEGER NOT NULL, data TEXT NOT NULL, own TEXT NOT NULL,
    removed INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (event_id, email)) WITHOUT ROWID;
CREATE INDEX events_of_guest ON attendees (email);
CREATE TABLE notifications (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, event_id TEXT NOT NULL, recipient TEXT NOT NULL,
    sent_by TEXT NOT NULL);
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
INSERT INTO counters VALUES ('revision', 0), ('id', 0);
"""
"""``events.start_utc`` and ``end_utc`` are set where an event has a clock time and is no series: what a range query
can use. ``body`` holds an event's other shared fields, in the API's shape."""
