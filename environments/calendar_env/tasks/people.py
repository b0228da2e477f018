"""The words companies are made of: names of people, companies, rooms and meetings, and where offices stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FIRST_NAMES = (
    "Ada", "Aisha", "Alejandro", "Amara", "Anders", "Anjali", "Anna", "Arjun", "Astrid", "Ben", "Bianca", "Carlos",
    "Chiara", "Chloe", "Daniel", "Deepa", "Diego", "Elena", "Emil", "Emma", "Farid", "Fatima", "Felix", "Freya",
    "Gita", "Grace", "Hana", "Hugo", "Ines", "Ivan", "Jakob", "Jia", "Jonas", "Kavya", "Kenji", "Lara", "Leo",
    "Lina", "Lucas", "Maya", "Mei", "Miriam", "Nadia", "Nikhil", "Noah", "Olga", "Oscar", "Paula", "Priya", "Rafael",
    "Ravi", "Rosa", "Ruth", "Samir", "Sara", "Sofia", "Tariq", "Theo", "Tomas", "Uma", "Vera", "Yara", "Yusuf", "Zoe",
)  # fmt: skip
LAST_NAMES = (
    "Abel", "Almeida", "Andersen", "Bauer", "Becker", "Bianchi", "Brooks", "Castillo", "Chen", "Cohen", "Costa",
    "Das", "Dubois", "Eriksen", "Fischer", "Fontaine", "Garcia", "Gupta", "Haddad", "Hansen", "Hoffmann", "Ibrahim",
    "Iyer", "Jansen", "Kapoor", "Keller", "Khan", "Kim", "Koch", "Kumar", "Lang", "Larsen", "Lopez", "Mehta",
    "Meyer", "Moreau", "Nakamura", "Nguyen", "Novak", "Okafor", "Oliveira", "Olsen", "Patel", "Petrov", "Ramos",
    "Rao", "Reyes", "Rossi", "Santos", "Sato", "Schmidt", "Sharma", "Silva", "Singh", "Tanaka", "Torres", "Vogel",
    "Walker", "Weber", "Wilson", "Wolf", "Yilmaz", "Young", "Zimmer",
)  # fmt: skip
COMPANIES = (
    "Acme", "Bluebird", "Cobalt", "Deltawing", "Evergreen", "Foxglove", "Granite", "Harbour", "Ironwood", "Juniper",
    "Kestrel", "Lumen", "Meridian", "Northwind", "Opaline", "Pinecone",
)  # fmt: skip
TEAMS: Mapping[str, Sequence[str]] = {
    "Design": ("Designer", "Researcher", "Illustrator"),
    "Engineering": ("Engineer", "Software engineer", "Data engineer"),
    "Finance": ("Controller", "Accountant", "Analyst"),
    "Legal": ("Counsel", "Paralegal", "Compliance officer"),
    "Marketing": ("Copywriter", "Campaign manager", "Brand manager"),
    "Operations": ("Planner", "Logistics manager", "Buyer"),
    "People": ("Recruiter", "People partner", "Trainer"),
    "Sales": ("Account manager", "Sales engineer", "Account executive"),
    "Support": ("Support engineer", "Support lead", "Technical writer"),
}
CITIES = {
    "Europe/Berlin": "Berlin",
    "Europe/London": "London",
    "America/New_York": "New York",
    "Asia/Kolkata": "Kolkata",
    "Asia/Singapore": "Singapore",
    "Australia/Sydney": "Sydney",
}
ROOM_NAMES = (
    "Amber", "Birch", "Cedar", "Coral", "Elm", "Fjord", "Garnet", "Hazel", "Indigo", "Jade", "Lagoon", "Maple",
    "Onyx", "Opal", "Poplar", "Quartz", "Reef", "Rowan", "Saffron", "Topaz", "Willow",
)  # fmt: skip
FEATURES = ("video", "whiteboard", "phone", "projector")
PROJECTS = (
    "Apollo", "Beacon", "Cascade", "Compass", "Comet", "Drift", "Ember", "Falcon", "Glacier", "Halo", "Horizon",
    "Lantern", "Mosaic", "Nimbus", "Orbit", "Pioneer", "Quill", "Ripple", "Summit", "Tandem", "Vector", "Zephyr",
)  # fmt: skip
OCCASIONS = (
    "kick-off", "planning", "review", "workshop", "retrospective", "demo", "budget talk", "risk review", "briefing",
    "roadmap session", "hand-off", "interview", "check-in", "strategy session", "dry run", "post-mortem",
)  # fmt: skip
CUSTOMERS = ("Alto Foods", "Brightwater", "Corvus Bank", "Dynamo Rail", "Eastgate", "Finch & Co", "Gallow Labs")
EVERYDAY = (
    "Coffee chat", "Vendor call", "Hiring sync", "Backlog grooming", "Invoice run", "Contract reading", "Press call",
    "Site walk", "Security training", "Metrics deep dive", "Sprint planning", "Office hours", "Lunch and learn",
    "Expense check", "Support rota", "Pricing round", "Mentoring", "Onboarding", "Inventory check", "Town hall prep",
)  # fmt: skip
PRIVATE_MATTERS = ("Dentist", "Doctor", "Parents' evening", "Physiotherapy", "Bank appointment", "Driving lesson")


@dataclass(frozen=True)
class Person:
    """Somebody of the company.

    Attributes:
        email: The person's address, which is also the id of their primary calendar.
        name: First and last name; unique in the company.
        title: What they do.
        team: The name of their team.
        zone: Their time zone.
        role: Their role in the directory: "employee", "manager", ....
        hours: Their working hours by weekday ("MO"): begin and end as "HH:MM" in their zone.
        manager: The address of their manager; None for who has none.
    """

    email: str
    name: str
    title: str
    team: str
    zone: str
    role: str
    hours: Mapping[str, Sequence[str]]
    manager: str | None

    @property
    def city(self) -> str:
        """Where they work."""
        return CITIES[self.zone]


@dataclass(frozen=True)
class Room:
    """A room that can be invited.

    Attributes:
        email: Its address, which is also the id of its calendar.
        name: Its name; unique in the company.
        capacity: How many people it holds.
        zone: The time zone of its site.
        features: What stands in it.
    """

    email: str
    name: str
    capacity: int
    zone: str
    features: Sequence[str]

    @property
    def city(self) -> str:
        """The site it is on."""
        return CITIES[self.zone]
