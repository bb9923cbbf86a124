"""Questions that the small real model answers in a few sentences."""

QUESTIONS = (
    "What is the capital of France?",
    "Name the four seasons of the year.",
    "How do plants make their food?",
    "What does the heart do?",
    "What is a computer program?",
    "What is the chemical symbol of gold?",
    "What is the ocean?",
    "Explain in two sentences what a volcano is.",
    "What is the boiling point of water at sea level?",
    "What does a librarian do?",
)
